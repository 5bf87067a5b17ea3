//! `dalsegno worker`.

use std::time::Duration;

use clap::Args;

use super::duration;

/// Execute runs of a store in a database, with commands as agents
///
/// Any number of workers, on any number of machines, share a store: each takes runs of its agents that
/// may go on, the most urgent first, and takes over those of workers that are gone. What `dalsegno start`
/// has started, or a program that uses the library, is executed by the agent's command: a script of
/// `dalsegno step`s, in any language. It is run by `sh -c`, so it may have arguments.
///
/// The command finds the run's input as JSON on its standard input and, up to 100 kB, in DALSEGNO_INPUT;
/// its run in DALSEGNO_RUN, its agent in DALSEGNO_AGENT, the store in DALSEGNO_STORE. `dalsegno step` and
/// `dalsegno end` in it ask this worker (DALSEGNO_WORKER), and do not open the store. It is in a process
/// group of its own, and ends with this worker.
#[derive(Args, Debug)]
#[command(after_long_help = "\
How the command ends:
  0                the run is completed, and what was printed is its result: as JSON if it is JSON, else
                   as text; or `dalsegno end` has said what it came to
  3                a person is needed: the run rests until one says something (`dalsegno resolve`)
  else             it is started again, here, and goes on at the first step that has not finished; after
                   --max-restarts in a row in which no step was finished a person is asked

SIGTERM or SIGINT: no more runs are taken, and no more steps begun (`dalsegno step` ends with 75); steps
under way have --grace to finish; then their commands get SIGTERM, and other workers go on with the runs
at once. A second signal kills the commands at once.

Examples:
  dalsegno worker --agent report=./report.sh
  dalsegno worker --agent report='./report.sh --fast' --agent load=./load.py --max-running-of load=2
  dalsegno worker --agent report=./report.sh --queue urgent --queue '' --lease 10s

Exit codes: 0 told to end, and ended; 1 failed; 2 wrong use; 4 the store is damaged; 130 told twice")]
pub struct WorkerArgs {
    /// An agent and its command; may be given more than once
    #[arg(long = "agent", value_name = "NAME=COMMAND", required = true, value_parser = named)]
    pub agents: Vec<(String, String)>,
    /// Only take runs of this queue, '' for those without one; may be given more than once
    #[arg(long = "queue", value_name = "QUEUE")]
    pub queues: Vec<String>,
    /// How many runs to execute at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count)]
    pub max_running: usize,
    /// How many runs of one agent to execute at a time; may be given more than once
    #[arg(long, value_name = "NAME=N", value_parser = named_count)]
    pub max_running_of: Vec<(String, usize)>,
    /// Other workers take over what this one has not been heard of for so long; at least 1s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = lease)]
    pub lease: Duration,
    /// How long steps under way may take to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub grace: Duration,
    /// Ask a person after so many restarts of a command in a row without progress
    #[arg(long, value_name = "TIMES", default_value_t = 10)]
    pub max_restarts: u32,
    /// How long to wait before the first restart of a command; twice as long each time in a row
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse)]
    pub backoff: Duration,
    /// The longest wait before a restart
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration::parse)]
    pub max_backoff: Duration,
}

/// `NAME=COMMAND`.
fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
            Ok((name.to_owned(), command.to_owned()))
        }
        _ => Err("an agent is as in report=./report.sh".to_owned()),
    }
}

/// `NAME=N`.
fn named_count(text: &str) -> Result<(String, usize), String> {
    let (name, number) = text.split_once('=').unwrap_or_default();
    match (name.is_empty(), count(number)) {
        (false, Ok(number)) => Ok((name.to_owned(), number)),
        _ => Err("a limit is as in report=4".to_owned()),
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a worker that executes nothing is none".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err("it is a number, as in 4".to_owned()),
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        time if time < Duration::from_secs(1) => {
            Err("a shorter lease than 1s ends before it can be renewed".to_owned())
        }
        time => Ok(time),
    }
}
