//! Looks at the resources of a run before it is resumed.

use std::collections::BTreeMap;
use std::fmt;

use dalsegno_store::NewEvent;
use serde_json::{Value, json};

use super::{GONE, IfChanged, NotedResource, Validators};
use crate::record::resource as field;
use crate::runtime::Runtime;
use crate::why::shorten;

/// One resource, as noted and as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub key: String,
    pub policy: IfChanged,
    pub noted: String,
    /// What it looks like now, or why that cannot be said.
    pub found: Result<String, String>,
    /// A person has accepted what is found.
    pub accepted: bool,
    note: NewNote,
}

/// How to note it anew.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NewNote(super::Resource);

impl Checked {
    pub fn is_as_noted(&self) -> bool {
        self.found.as_ref() == Ok(&self.noted)
    }

    /// `unchanged`, `changed`, `gone` or `unknown`.
    pub fn word(&self) -> &'static str {
        match &self.found {
            Ok(_) if self.is_as_noted() => "unchanged",
            Ok(found) if found == GONE => "gone",
            Ok(_) => "changed",
            Err(_) => "unknown",
        }
    }

    pub fn to_json(&self) -> Value {
        let mut value = json!({
            "resource": self.key, "verdict": self.word(), "noted": self.noted,
            "policy": self.policy.word(), "accepted": self.accepted,
        });
        match &self.found {
            Ok(found) => value["found"] = json!(found),
            Err(why) => value["why"] = json!(shorten(why, super::WHY_LIMIT_BYTES)),
        }
        value
    }

    /// That it had changed, and that this was accepted.
    fn accepted_event(&self, by: u64) -> Option<NewEvent> {
        let mut event = self.note.0.noted(self.found.as_ref().ok()?);
        event.fields = event.fields.with(field::ACCEPTED, by);
        Some(event)
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, noted) = (&self.key, &self.noted);
        match &self.found {
            Ok(_) if self.is_as_noted() => write!(f, "{key} is unchanged"),
            Ok(found) if found == GONE => write!(f, "{key} is gone, it was {noted}"),
            Ok(found) => write!(f, "{key} was {noted} and is {found}"),
            Err(why) => write!(f, "{key} was {noted} and cannot be looked at: {why}"),
        }
    }
}

/// Looks at all of them.
pub(crate) async fn check_all(
    noted: &BTreeMap<String, NotedResource>,
    validators: &Validators,
    runtime: &dyn Runtime,
) -> Verdicts {
    let mut all = Vec::new();
    for (key, noted) in noted {
        let resource = noted.resource();
        let found = resource.look(validators, runtime).await;
        let accepted = noted.accepted.is_some() && noted.accepted.as_ref() == found.as_ref().ok();
        all.push(Checked {
            key: key.clone(),
            policy: noted.policy,
            noted: noted.fingerprint.clone(),
            accepted,
            found,
            note: NewNote(resource),
        });
    }
    Verdicts(all)
}

/// What was found of the resources of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdicts(pub Vec<Checked>);

impl Verdicts {
    /// Those because of which the run must not go on.
    fn standing_in_the_way(&self) -> impl Iterator<Item = &Checked> {
        let not_as_noted = self.0.iter().filter(|one| !one.is_as_noted());
        not_as_noted.filter(|one| !one.accepted && one.policy != IfChanged::GoOn)
    }

    /// Why the run fails, if it does.
    pub fn failure(&self) -> Option<String> {
        let mut fatal = self.standing_in_the_way();
        // What cannot be looked at has not changed, as far as anybody knows.
        let fatal = fatal.find(|one| one.policy == IfChanged::Fail && one.found.is_ok());
        fatal.map(|one| format!("what the run depends on has changed: {one}: start another run"))
    }

    /// Those that a person has to look at.
    pub fn for_a_person(&self) -> Vec<Checked> {
        self.standing_in_the_way().cloned().collect()
    }

    /// What was accepted, to be recorded.
    pub fn events(&self) -> Vec<NewEvent> {
        let changed = self.0.iter().filter(|one| !one.is_as_noted());
        let event = |one: &Checked| one.accepted_event(if one.accepted { 1 } else { 2 });
        changed.filter_map(event).collect()
    }

    pub fn to_json(&self) -> Value {
        self.0.iter().map(Checked::to_json).collect()
    }
}
