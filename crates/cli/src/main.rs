//! The command `dalsegno`: parses what was asked, does it, and ends with a code that scripts can rely on.

mod address;
mod args;
mod asks;
mod commands;
mod exit;
mod find;
mod interrupt;
mod left_behind;
mod line;
mod memory;
mod open;
mod output;
mod place;
mod process;
mod progress;
mod run_lock;
mod runtime;
mod shadow;

use std::process::ExitCode;

use output::Out;

fn main() -> ExitCode {
    exit::without_stack_traces();
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let mut out = Out::standard(&cli.global);
    let done = commands::run(cli, &mut out);
    exit::end(done, out)
}
