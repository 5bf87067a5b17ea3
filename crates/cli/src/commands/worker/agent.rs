//! An agent that is a command: its lives, until its run has an end, needs a person or is let go of.
//!
//! | the command ends | the run |
//! |---|---|
//! | after `dalsegno end` | ends as that said |
//! | with 0, and no step is unfinished | is completed with what was printed |
//! | with 3 | rests until a person says something |
//! | otherwise | the command is started again; too often in a row without progress: a person is asked |
//!
//! Invariant: while the run is this worker's there is one process of its command at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dalsegno::script::ScriptRun;
use dalsegno::{AttentionKind, Failure, Stopped};
use dalsegno_store::{NewPayload, Store};

use super::groups::Groups;
use super::life::{Ended, Life};
use super::say::{About, Say};
use super::socket::Folder;
use crate::process;

/// A command that ends so asks for a person, and would only ask again.
const NEEDS_PERSON: i32 = 3;

/// What all agents of a worker share.
pub struct Shared {
    pub store: Arc<dyn Store>,
    /// For the environment of commands.
    pub place: PathBuf,
    pub sockets: Folder,
    pub groups: Arc<Groups>,
    pub say: Say,
    pub max_restarts: u32,
    pub backoff: Duration,
    pub max_backoff: Duration,
}

/// An agent and its command.
pub struct AgentCommand {
    pub name: String,
    pub command: String,
}

/// What is said about a run of an agent, also when it is let go of.
struct Talk<'a> {
    say: Say,
    run: &'a ScriptRun,
    agent: &'a str,
    /// The run has its end.
    is_over: bool,
}

impl Talk<'_> {
    fn say(&self, event: &str, message: &str, pid: Option<u32>, exit: Option<u8>) {
        let about = About {
            run: Some(self.run.name()),
            agent: Some(self.agent),
            pid,
            exit,
        };
        self.say.line(event, message, about);
    }
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        let Some(stopped) = self.run.stopped().filter(|_| !self.is_over) else {
            return;
        };
        let why = stopped.to_string();
        match stopped {
            Stopped::Closing => self.say("handed-over", "other workers can go on", None, None),
            Stopped::Fenced(_) | Stopped::Store(_) => self.say("lost", &why, None, None),
            Stopped::Attention(_) => self.say("needs-person", &why, None, None),
            _ => self.say("ended", &why, None, None),
        }
    }
}

/// Executes a run to its end.
///
/// # Errors
/// The run failed.
pub async fn execute(
    shared: Arc<Shared>,
    agent: Arc<AgentCommand>,
    run: ScriptRun,
    input: Vec<u8>,
) -> dalsegno::Result<NewPayload> {
    let mut talk = Talk {
        say: shared.say,
        run: &run,
        agent: &agent.name,
        is_over: false,
    };
    talk.say("claimed", &format!("agent {}", agent.name), None, None);
    let mut in_a_row = 0;
    loop {
        let why = match Life::begin(&shared, &agent, &run, &input) {
            Err(e) => format!("its command cannot be started: {e}"),
            Ok(life) => {
                let pid = life.group;
                talk.say("started", &format!("process {pid}"), Some(pid), None);
                match life.until_ended().await {
                    Err(e) => format!("its command cannot be waited for: {e}"),
                    Ok(ended) => {
                        if ended.progress {
                            in_a_row = 0;
                        }
                        let code = process::exit_code(ended.status);
                        let how = process::words(ended.status);
                        talk.say("ended", &how, Some(pid), Some(code));
                        match result(&run, ended).await {
                            Ok(result) => {
                                talk.is_over = true;
                                return result;
                            }
                            Err(why) => why,
                        }
                    }
                }
            }
        };
        if in_a_row >= shared.max_restarts {
            let times = in_a_row + 1;
            let reason = format!(
                "its command has ended {times} times in a row and finished no step, the last time \
                 because {why}: mend it, then let the run go on"
            );
            return run.hand_to_person(AttentionKind::CrashLoop, &reason).await;
        }
        let doubled = shared.backoff.saturating_mul(1 << in_a_row.min(20));
        let pause = doubled.min(shared.max_backoff);
        in_a_row += 1;
        let message = format!("{why}: starting it again in {pause:?}");
        talk.say("restarting", &message, None, None);
        tokio::time::sleep(pause).await;
    }
}

/// What a run comes to whose command has ended; or why it is to be started again.
async fn result(run: &ScriptRun, ended: Ended) -> Result<dalsegno::Result<NewPayload>, String> {
    match ended.said {
        Some(Ok(None)) => return Ok(Ok(NewPayload::json("null"))),
        Some(Ok(Some(text))) => {
            return Ok(Ok(NewPayload::json(serde_json::json!(text).to_string())));
        }
        Some(Err(why)) => return Ok(Err(Failure::terminal(why))),
        None => {}
    }
    let mut why = process::words(ended.status);
    if !ended.complaint.is_empty() {
        why = format!("{why}: {}", ended.complaint);
    }
    match ended.status.code() {
        Some(0) => match run.unfinished().await {
            Ok(None) => Ok(printed(ended.stdout, ended.too_much)),
            Ok(Some(step)) => Err(format!("{why}, and {step} is not finished")),
            Err(e) => Err(format!("{why}, and the run cannot be read: {e}")),
        },
        Some(NEEDS_PERSON) => {
            let reason =
                format!("its command asks for a person ({why}): see to it, then let the run go on");
            run.hand_to_person(AttentionKind::Other, &reason).await
        }
        _ => Err(why),
    }
}

/// What a command has printed, as the result of its run: as JSON if it is, else as text without the end
/// of its last line.
fn printed(stdout: Vec<u8>, too_much: Option<u64>) -> dalsegno::Result<NewPayload> {
    if let Some(bytes) = too_much {
        return Err(Failure::terminal(format!(
            "it printed {bytes} bytes, more than can be recorded: have it print into a file, and print \
             the file's name"
        )));
    }
    let text = String::from_utf8(stdout)
        .map_err(|_| Failure::terminal("what it printed is no text: have it print into a file"))?;
    let is_json = serde_json::from_str::<serde_json::Value>(&text).is_ok();
    Ok(NewPayload::json(match is_json {
        true => text,
        false if text.trim().is_empty() => "null".to_owned(),
        false => serde_json::json!(text.strip_suffix('\n').unwrap_or(&text)).to_string(),
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_printed_is_the_result() {
        for (text, result) in [
            ("{\"a\": 1}\n", "{\"a\": 1}\n"),
            ("17\n", "17\n"),
            ("", "null"),
            ("\n", "null"),
            ("hello\n", "\"hello\""),
            ("two\nlines\n", "\"two\\nlines\""),
        ] {
            let payload = printed(text.into(), None).unwrap();
            assert_eq!(payload.bytes, result.as_bytes(), "{text:?}");
        }
        assert!(printed(vec![0xff], None).is_err());
        assert!(printed(Vec::new(), Some(1 << 40)).is_err());
    }
}
