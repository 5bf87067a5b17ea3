//! Saying something to a run: sent as a letter, on disk when it is sent, and what became of it.

use dalsegno::{Journal, Remote, Sent, StepId};
use serde::Serialize;

use crate::address::Place;
use crate::args::Global;
use crate::args::order::How;
use crate::exit::{Error, Exit, Result};
use crate::output::Out;
use crate::output::text::{quoted, shown};
use crate::{find, open};

/// `dalsegno.order/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    order: &'a str,
    run: &'a str,
    /// The approval, step or signal that it is about.
    about: Option<&'a str>,
    letter: LetterDocument<'a>,
    /// The process that owns the store and takes it up; `null`: whichever owns it next.
    owner: Option<String>,
    /// Whether it was taken up; `null` if that was not waited for.
    taken: Option<bool>,
    /// The event of the run that it has become.
    event: Option<u64>,
}

#[derive(Serialize)]
struct LetterDocument<'a> {
    sender: &'a str,
    number: u64,
}

/// What was said.
pub struct Order<'a> {
    /// The command, as in `approve`.
    pub order: &'a str,
    /// The run.
    pub run: &'a str,
    /// The approval, step or signal that it is about.
    pub about: Option<&'a str>,
    /// In words, as in `approval refund#1 approved by ada`.
    pub words: String,
}

/// Says what became of an order that was sent.
///
/// # Errors
/// It was waited for, and was refused or not taken up.
pub async fn report(
    order: Order<'_>,
    sent: Sent,
    how: &How,
    global: &Global,
    out: &mut Out,
) -> Result<Exit> {
    let owner = open::owner_now(global);
    let taken = match how.wait {
        Some(time) => match sent.taken_within(time).await {
            Ok(taken) => Some(taken.sequence),
            Err(dalsegno::Error::NotTaken { .. }) => {
                let run = shown(order.run);
                let seconds = time.as_secs_f64();
                let what = format!("run {run} has not taken it up within {seconds} s");
                let hint = format!(
                    "it is on disk and is not lost; {}",
                    later(owner.as_deref(), global)
                );
                return Err(Error::failed(what).hint(hint));
            }
            Err(e) => return Err(e.into()),
        },
        None => None,
    };
    if out.is_json() {
        let letter = sent.letter();
        out.json(&Document {
            schema: "dalsegno.order/1",
            order: order.order,
            run: order.run,
            about: order.about,
            letter: LetterDocument {
                sender: &letter.sender,
                number: letter.number,
            },
            owner,
            taken: how.wait.map(|_| taken.is_some()),
            event: taken,
        })?;
    } else {
        let (run, words) = (shown(order.run), shown(&order.words));
        out.line(match taken {
            Some(event) => format!("run {run}: {words}, taken up as event {event}"),
            None => {
                let kept = match Place::of(&global.store) {
                    Place::Folder(_) => "on disk",
                    Place::Database(_) => "in the database",
                };
                let later = later(owner.as_deref(), global);
                format!("run {run}: {words}, {kept}; {later}")
            }
        })?;
    }
    Ok(Exit::Done)
}

fn later(owner: Option<&str>, global: &Global) -> String {
    match owner {
        _ if Place::of(&global.store).is_database() => {
            "the worker that has the run, or the next one, takes it up".to_owned()
        }
        Some(owner) => format!("{} owns the store and takes it up", shown(owner)),
        None => "no process owns the store now: it is taken up at the next start".to_owned(),
    }
}

/// The journal of a run that there is.
///
/// # Errors
/// There is no such run, or it cannot be read.
pub async fn journal(remote: &Remote, run: &str) -> Result<Journal> {
    let store = &**remote.store();
    find::run(store, run).await?;
    Ok(dalsegno::views::journal(store, run).await?)
}

/// The one that was named, or the only one that there is.
///
/// # Errors
/// None is open, or it is not clear which is meant.
pub fn the_one(run: &str, what: &str, named: Option<&str>, open: &[&StepId]) -> Result<String> {
    let (run, to_paste) = (shown(run), quoted(run));
    let list = || {
        let names: Vec<_> = open.iter().map(|id| shown(id.as_str())).collect();
        names.join(", ")
    };
    match (named, open) {
        (Some(name), _) if open.iter().any(|id| id.as_str() == name) => Ok(name.to_owned()),
        (_, []) => Err(Error::failed(format!("run {run} has no {what}"))
            .hint(format!("`dalsegno why {to_paste}` says what it waits for"))),
        (Some(name), _) => {
            let near = find::nearest(name, open.iter().map(|id| id.as_str()));
            let error = Error::failed(format!("run {run} has no {what} {name:?}, only {}", list()));
            Err(match near {
                Some(near) => error.hint(format!("did you mean {:?}?", shown(near))),
                None => error,
            })
        }
        (None, [only]) => Ok(only.as_str().to_owned()),
        (None, _) => Err(Error::usage(format!("run {run} has more than one {what}"))
            .hint(format!("name one of {}", list()))),
    }
}
