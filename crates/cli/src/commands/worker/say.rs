//! The log of a worker: one line on stderr for each thing that happens.

use std::io::{self, Write};

use serde::Serialize;

use crate::output::text::shown;
use crate::output::{json, time};

/// `dalsegno.worker/1`, a line of the log.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    time_us: u64,
    event: &'a str,
    message: &'a str,
    #[serde(flatten)]
    about: About<'a>,
}

/// What a line is about, if not about the worker.
#[derive(Default, Serialize)]
pub struct About<'a> {
    pub run: Option<&'a str>,
    pub agent: Option<&'a str>,
    pub pid: Option<u32>,
    pub exit: Option<u8>,
}

/// Where it is said.
#[derive(Clone, Copy, Debug)]
pub struct Say {
    pub json: bool,
}

impl Say {
    /// Says what happened to the worker.
    pub fn of_worker(self, event: &str, message: &str) {
        self.line(event, message, About::default());
    }

    /// Says what happened, and to whom.
    pub fn line(self, event: &str, message: &str, about: About<'_>) {
        let now_us = time::now_us();
        let text = match self.json {
            true => json::line(&Line {
                schema: "dalsegno.worker/1",
                time_us: now_us,
                event,
                message,
                about,
            }),
            false => {
                let run = about.run.map(|run| format!("run {}: ", shown(run)));
                let run = run.unwrap_or_default();
                let message = shown(message);
                format!(
                    "{} dalsegno worker: {event}: {run}{message}\n",
                    time::utc(now_us)
                )
            }
        };
        // Who does not listen is no reason to stop.
        drop(io::stderr().lock().write_all(text.as_bytes()));
    }
}
