//! The agent's process: executes runs of the story until all have ended. It is the one that is
//! killed.

use std::io::Write;
use std::process::ExitCode;

use dalsegno_story::worker::{Options, execute};

fn main() -> ExitCode {
    let options = match Options::from_args(std::env::args_os().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("story-worker: {why}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let done = runtime.map(|runtime| runtime.block_on(execute(options, report)));
    match done {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(e)) => {
            eprintln!("story-worker: {e}");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("story-worker: there are no threads: {e}");
            ExitCode::FAILURE
        }
    }
}

/// In one write, so that a kill cannot halve a line. Who does not listen is no reason to stop.
fn report(text: &str) {
    let line = format!("{text}\n");
    drop(std::io::stdout().lock().write_all(line.as_bytes()));
}
