//! Another program that remembers, in a process of its own, so that its crates are not among ours.
//!
//! One line asks, one line answers. Times are taken in there: the pipe is not in them.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Error;

/// The process.
pub struct Peer {
    name: String,
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// What a search gave.
pub struct Found {
    pub micros: f64,
    /// Places of texts, in the order of the file.
    pub places: Vec<usize>,
}

impl Peer {
    /// Starts `program`, which is to be `name`, on a file of texts, with a folder to put its own into.
    pub fn start(program: &Path, name: &str, texts: &Path, folder: &Path) -> Result<Peer, Error> {
        let mut command = Command::new(program);
        command.arg(name).arg(texts).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let cannot = |e| format!("{}: {e}: see --help for --peers", program.display());
        let mut child = command.spawn().map_err(cannot)?;
        let (asks, answers) = (child.stdin.take(), child.stdout.take());
        let (Some(asks), Some(answers)) = (asks, answers) else {
            return Err("the process has no pipes".into());
        };
        Ok(Peer {
            name: name.into(),
            child,
            asks,
            answers: BufReader::new(answers),
        })
    }

    /// Adds the next so many texts and makes them durable; in microseconds.
    pub fn add(&mut self, count: usize) -> Result<f64, Error> {
        self.micros(&format!("add {count}"))
    }

    /// Closes and opens it, and searches once; in microseconds.
    pub fn reopen(&mut self) -> Result<f64, Error> {
        self.micros("reopen")
    }

    /// Searches for words, which must be free of line ends.
    pub fn search(&mut self, limit: usize, words: &str) -> Result<Found, Error> {
        let answer = self.ask(&format!("search {limit} {words}"))?;
        let mut fields = answer.split(' ');
        let micros = fields.next().unwrap_or_default().parse()?;
        let places = fields.map(str::parse).collect::<Result<_, _>>()?;
        Ok(Found { micros, places })
    }

    fn micros(&mut self, ask: &str) -> Result<f64, Error> {
        Ok(self.ask(ask)?.parse()?)
    }

    fn ask(&mut self, ask: &str) -> Result<String, Error> {
        writeln!(self.asks, "{ask}")?;
        let mut answer = String::new();
        if self.answers.read_line(&mut answer)? == 0 {
            return Err(format!("{} ended at: {ask}", self.name).into());
        }
        Ok(answer.trim_end().to_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has nothing that anybody needs.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
