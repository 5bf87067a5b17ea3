//! `dalsegno step` and `dalsegno end`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dalsegno::Effect;

use super::duration;

/// Run a command as a durable step of a script
///
/// The first time, the command runs, and what it prints and its exit code are recorded. From then on
/// the same step prints what is recorded and ends with that code, without running the command. A
/// script that is killed is simply run again: it goes on at the step that had not finished.
///
/// The name stands for one step of the run: the same name with another command is an error, and a
/// loop numbers its steps (--name "fetch-$i"). What comes in by standard input is passed on and is
/// not part of the record.
///
/// The command finds in its environment DALSEGNO_IDEMPOTENCY_KEY (the same on every attempt: give it
/// to the other side), DALSEGNO_RUN, DALSEGNO_STEP and DALSEGNO_ATTEMPT.
#[derive(Args, Debug)]
#[command(after_long_help = "\
What is done about a step that was under way when its process was killed:
  read-only, idempotent   it runs again, with the same key
  once                    the --probe is asked; without one a person is (exit code 3)

A probe gets the same environment. Its exit code 0 says that it happened, and what it prints is the
result; 1 that it did not happen; anything else that nobody knows.

A command that ends with another code than 0:
  --failed-means unknown   (default) it may have done something or not: a step that is read-only or
                           idempotent is tried again when it is asked for again, one that is once is
                           in doubt as if it had been killed
  --failed-means not-done  it did nothing: it is tried again when it is asked for again
  --failed-means final     that is its result: recorded, and given back ever after
A command that could not be started at all did nothing.

Examples:
  dalsegno step --run nightly --name fetch --effect read-only -- curl -fsS https://example.com/a
  dalsegno step --run nightly --name mail --probe './was-it-sent' -- ./send-mail report.txt
  dalsegno step --run nightly --name load --effect idempotent --retry 5 --timeout 30s -- ./load
  dalsegno end --run nightly

Exit codes: that of the command, 128 + n if signal n ended it; and if the command has none:
  2 wrong use, 3 a person is needed, 4 the store is damaged, 75 the worker that started the script
  hands its run over, 124 it took longer than --timeout, 125 dalsegno failed, 126 the command cannot
  be run, 127 it was not found.
Those of dalsegno come with `error: …` on stderr, or as a document with --json.")]
pub struct StepArgs {
    /// The run that the step belongs to; made by its first step
    #[arg(
        long,
        short,
        value_name = "RUN",
        env = "DALSEGNO_RUN",
        hide_env_values = true
    )]
    pub run: String,
    /// The name of the step, unique in its run
    #[arg(long, short, value_name = "NAME")]
    pub name: String,
    /// What the command does to the world outside
    #[arg(long, short, value_name = "EFFECT", default_value = "once")]
    pub effect: EffectArg,
    /// A shell command that finds out whether a `once` step happened
    #[arg(long, short, value_name = "CMD")]
    pub probe: Option<String>,
    /// The longest that one attempt may take, as in 30s or 5m
    #[arg(long, short, value_name = "TIME", value_parser = duration::parse_some)]
    pub timeout: Option<Duration>,
    /// Try again so many times in this call, waiting a second at first and then twice as long each time
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    pub retry: u32,
    /// What it means that the command ends with another code than 0
    #[arg(long, value_name = "MEANING", default_value = "unknown")]
    pub failed_means: FailedMeans,
    /// Compare this text with the record instead of the command, for commands with names of temporary files in them
    #[arg(long, value_name = "TEXT")]
    pub input: Option<String>,
    /// How long to wait for another process that has the run or the store
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub wait: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What a step does to the world outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EffectArg {
    /// Nothing that anybody could notice
    #[value(alias = "read_only")]
    ReadOnly,
    /// Something that the other side does once for each key
    Idempotent,
    /// Something that must not be done twice
    Once,
}

impl EffectArg {
    /// The library's word.
    pub fn effect(self) -> Effect {
        match self {
            EffectArg::ReadOnly => Effect::ReadOnly,
            EffectArg::Idempotent => Effect::Idempotent,
            EffectArg::Once => Effect::Once,
        }
    }
}

/// What it means that a command ends with another code than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailedMeans {
    /// It may have done something or not
    Unknown,
    /// It did nothing, and may be tried again
    NotDone,
    /// That is its result, and is not tried again
    Final,
}

/// End the run of a script
///
/// A run of steps has no end of its own: without this it is listed as waiting for the next step of
/// its script. Ending it twice is no error.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno end --run nightly
  dalsegno end --run nightly --result \"$url\"
  dalsegno end --run nightly --fail 'the report was empty'

Exit codes: 0 ended, also if it had ended before; 1 failed; 3 a step of it is in doubt; 4 the store
  is damaged; 75 the worker that started the script hands its run over")]
pub struct End {
    /// The run
    #[arg(
        long,
        short,
        value_name = "RUN",
        env = "DALSEGNO_RUN",
        hide_env_values = true
    )]
    pub run: String,
    /// What it came to
    #[arg(long, value_name = "TEXT", conflicts_with = "fail")]
    pub result: Option<String>,
    /// It failed, and why
    #[arg(long, value_name = "WHY")]
    pub fail: Option<String>,
    /// How long to wait for another process that has the run or the store
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub wait: Duration,
}
