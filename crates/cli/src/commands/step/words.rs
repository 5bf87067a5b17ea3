//! What `dalsegno step` says when there is no exit code of the command to end with.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::ErrorKind;

use super::turn::Asks;
use super::{NOT_FOUND, NOT_RUN, STOPPING};
use crate::exit::{Error, Exit};
use crate::output::text::shown;
use crate::process::{self, OUTPUT_LIMIT_BYTES, Ran};

/// So much of what a command complained about is said.
const LAST_WORDS_BYTES: usize = 300;

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/@%+=#".contains(c);
    match !word.is_empty() && word.chars().all(plain) && !word.starts_with('#') {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The name stands for another command.
pub fn mismatch(run: &str, name: &str, then: &str, now: &str) -> Error {
    let (run, name) = (shown(run), shown(name));
    Error::usage(format!(
        "step {name:?} of run {run:?} is recorded as {}, and now it is {}: nothing was done",
        shown(then),
        shown(now)
    ))
    .hint(
        "a name stands for one step of a run: number the steps of a loop (--name \"fetch-$i\"), say \
         with --input what counts, or use another run",
    )
}

/// Only a person can move the run on.
pub fn needs_person(run: &str, asks: &Asks) -> Error {
    let error = Error::new(
        Exit::NeedsPerson,
        format!("run {:?}: {}", shown(run), shown(&asks.reason)),
    );
    let run = quoted(run);
    error.hint(match asks.in_doubt.as_deref().map(quoted) {
        Some(step) => format!(
            "one of\n  dalsegno resolve {run} {step} --happened --result '\"what it printed\"'\n  \
             dalsegno resolve {run} {step} --did-not-happen\n  dalsegno resolve {run} {step} --fail\n\
             and then run the script again"
        ),
        None => format!("`dalsegno why {run}` says what to do"),
    })
}

/// The run has ended.
pub fn ended(run: &str, status: &str) -> Error {
    let run = shown(run);
    Error::failed(format!(
        "run {run:?} is {}: it takes no new steps, nothing was done",
        shown(status)
    ))
    .hint("use another run, or take out `dalsegno end` before the script's last step")
}

/// What it failed with is recorded, and there is no exit code.
pub fn failed_for_good(run: &str, failure: &impl Display) -> Error {
    let run = shown(run);
    Error::failed(format!(
        "run {run:?}: {}: that is recorded, and it is not done again",
        shown(&failure.to_string())
    ))
}

/// The worker hands the run over.
pub fn stopping(run: &str) -> Error {
    let run = shown(run);
    Error::new(
        Exit::Command(STOPPING),
        format!("the worker that has run {run:?} is stopping: nothing was done"),
    )
    .hint("end the script: another worker goes on with it at this step")
}

/// The worker does not answer any more.
pub fn gone(run: &str) -> Error {
    let run = shown(run);
    Error::new(
        Exit::Command(STOPPING),
        format!("the worker that had run {run:?} has let go of it: nothing was done"),
    )
    .hint("end the script: another worker goes on with it at this step")
}

/// The worker has gone while a step was under way.
pub fn not_recorded(step: &str) -> Error {
    let step = shown(step);
    Error::new(
        Exit::Command(STOPPING),
        format!(
            "the worker let go of the run during step {step:?}: what it came to is not recorded"
        ),
    )
    .hint("end the script: another worker finds out what became of it")
}

/// It printed more than can be recorded.
pub fn too_much(bytes: u64) -> String {
    format!(
        "it was done, but it printed {bytes} bytes, and {OUTPUT_LIMIT_BYTES} can be recorded: have it \
         print into a file, and print the file's name"
    )
}

/// It could not be started; and the code for that.
pub fn not_started(program: &OsStr, error: &std::io::Error) -> (Error, u8) {
    let program = shown(&program.to_string_lossy());
    let code = match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUN,
    };
    let error = Error::failed(format!("cannot run {program}: {error}"));
    (
        error.hint("it did nothing: mend it and run the script again"),
        code,
    )
}

/// It was interrupted, and the next call asks its probe.
pub fn interrupted(name: &str, code: u8) -> Error {
    let what = format!(
        "step {:?} was interrupted, nobody knows whether it happened",
        shown(name)
    );
    Error::new(Exit::Command(code), what).hint("run the script again: its probe is asked")
}

/// Why it failed, with the last line that it complained with.
pub fn with_last_words(why: String, stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) else {
        return why;
    };
    let line: String = line.chars().take(LAST_WORDS_BYTES).collect();
    format!("{why}: {line}")
}

/// Why nobody knows, with what the probe said.
pub fn unclear(why: &str, ran: &Ran) -> String {
    let probe = match (ran.timed_out, ran.too_much) {
        (true, _) => "the probe took too long".to_owned(),
        (false, Some(_)) => "the probe printed too much".to_owned(),
        (false, None) => format!("the probe cannot tell: {}", process::words(ran.status)),
    };
    format!("{why}; {}", with_last_words(probe, &ran.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_pasted() {
        assert_eq!(quoted("order-42"), "order-42");
        assert_eq!(quoted("mail#1"), "mail#1");
        assert_eq!(quoted("two words"), "'two words'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
