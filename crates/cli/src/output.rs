//! What a command prints: buffered, in the form that was asked for, and never half.
//!
//! Words: *human* output is for a person, and everything in it that comes from a store is escaped
//! ([`text::shown`]); *JSON* is for programs, one document a line.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::args::{Color, Global};

pub mod event;
pub mod json;
mod pipe;
pub mod size;
pub mod style;
pub mod table;
pub mod text;
pub mod time;

use pipe::Pipe;
use style::Style;

/// Where a command prints to.
pub struct Out {
    pipe: Pipe,
    json: bool,
    color: bool,
    color_errors: bool,
    width: Option<usize>,
}

impl Out {
    /// Standard output, as the user wants it.
    pub fn standard(global: &Global) -> Out {
        let stdout = io::stdout();
        let width = stdout.is_terminal().then(terminal_columns).flatten();
        let color = wants_color(global.color, stdout.is_terminal());
        Out {
            pipe: Pipe::new(Box::new(stdout.lock())),
            json: global.json,
            color: color && !global.json,
            color_errors: wants_color(global.color, io::stderr().is_terminal()),
            width,
        }
    }

    /// Whether JSON was asked for.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether colour is wanted.
    pub fn colors(&self) -> bool {
        self.color
    }

    /// Whether errors may be coloured.
    pub fn colors_errors(&self) -> bool {
        self.color_errors
    }

    /// A text in a style, if colour is wanted.
    pub fn paint(&self, style: Style, text: &str) -> String {
        style.paint(text, self.color)
    }

    /// A line for a person. What comes from a store must have been through [`text::shown`].
    pub fn line(&mut self, line: impl Display) -> io::Result<()> {
        self.pipe.write(&format!("{line}\n"))
    }

    /// A heading for a person.
    pub fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint(Style::Bold, text);
        self.line(text)
    }

    /// A table for a person.
    pub fn table(&mut self, table: &table::Table) -> io::Result<()> {
        let text = table.render(self.width, self.color);
        self.pipe.write(&text)
    }

    /// What a person should know beside the answer, on stderr. A program finds it in the document.
    pub fn note(&self, text: &str) {
        if !self.json {
            // Who does not listen is no reason to fail.
            drop(
                io::stderr()
                    .lock()
                    .write_all(format!("note: {text}\n").as_bytes()),
            );
        }
    }

    /// A document for a program.
    pub fn json(&mut self, document: &impl Serialize) -> io::Result<()> {
        self.pipe.write(&json::line(document))
    }

    /// Bytes as they are: a file that was asked for, another program's output.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pipe.write_bytes(bytes)
    }

    /// Everything is with the reader when this returns.
    pub fn flush(&mut self) -> Result<(), crate::exit::Error> {
        Ok(self.pipe.flush()?)
    }

    /// Whether nobody reads any more: who follows something can stop.
    pub fn is_gone(&self) -> bool {
        self.pipe.is_gone()
    }
}

fn wants_color(color: Color, is_terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            is_terminal
                && set("NO_COLOR").is_none()
                && set("TERM").is_none_or(|term| term != "dumb")
        }
    }
}

fn terminal_columns() -> Option<usize> {
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size()?;
    (columns > 0).then_some(usize::from(columns))
}
