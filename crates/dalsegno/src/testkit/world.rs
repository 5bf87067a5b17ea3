//! The world outside, which counts what is done to it and does not crash.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::Value;

use super::{Schedule, SimRuntime};
use crate::effect::Effect;
use crate::runtime::Runtime;

/// What the outside has seen. Tools under test call it with the key that they were given.
#[derive(Clone, Debug, Default)]
pub struct World {
    ledger: Arc<Mutex<BTreeMap<Entry, Seen>>>,
    pub(crate) schedule: Schedule,
    /// How long things take is random.
    pub(crate) jitter: Option<SimRuntime>,
    complaints: Arc<Mutex<Vec<String>>>,
    notes: Arc<Mutex<BTreeMap<String, u64>>>,
}

/// Which effect, under which key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    name: String,
    key: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    effect: Effect,
    arrived: u64,
    applied: u64,
    result: Value,
}

impl World {
    fn ledger(&self) -> MutexGuard<'_, BTreeMap<Entry, Seen>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(&self, effect: Effect, name: &str, key: &str, result: Value) -> Value {
        if let Some(runtime) = &self.jitter {
            let now_us = runtime.now_us();
            runtime.sleep_until(now_us + runtime.random() % 1000).await;
        }
        self.schedule
            .moment(|| format!("before {effect} {name}"))
            .await;
        let entry = Entry {
            name: name.to_owned(),
            key: key.to_owned(),
        };
        let result = {
            let mut ledger = self.ledger();
            let seen = ledger.entry(entry).or_insert(Seen {
                effect,
                arrived: 0,
                applied: 0,
                result,
            });
            seen.arrived += 1;
            if effect != Effect::Idempotent || seen.applied == 0 {
                seen.applied += 1;
            }
            seen.result.clone()
        };
        self.schedule
            .moment(|| format!("after {effect} {name}"))
            .await;
        result
    }

    /// Something that counts each time it comes: an e-mail, a payment without a key.
    pub async fn once(&self, name: &str, key: &str) {
        self.take(Effect::Once, name, key, Value::Null).await;
    }

    /// The same, with what it answers: a person or a probe can be told the same.
    pub async fn once_giving<T: Serialize>(&self, name: &str, key: &str, result: &T) {
        let result = serde_json::to_value(result).unwrap_or_default();
        self.take(Effect::Once, name, key, result).await;
    }

    /// Something that is done once for each key.
    pub async fn idempotent(&self, name: &str, key: &str) {
        self.take(Effect::Idempotent, name, key, Value::Null).await;
    }

    /// The same; what is asked for under one key must always be the same.
    pub async fn idempotent_given<T: Serialize>(&self, name: &str, key: &str, input: &T) {
        let input = serde_json::to_value(input).unwrap_or_default();
        let first = self
            .take(Effect::Idempotent, name, key, input.clone())
            .await;
        if first != input {
            self.complain(format!(
                "{name} came under {key} first with {first}, then with {input}"
            ));
        }
    }

    /// Something that has no effect.
    pub async fn read(&self, name: &str) {
        self.take(Effect::ReadOnly, name, "", Value::Null).await;
    }

    /// Whether something has happened under a key; what it answered.
    pub fn happened(&self, name: &str, key: &str) -> Option<Value> {
        let entry = Entry {
            name: name.to_owned(),
            key: key.to_owned(),
        };
        self.ledger().get(&entry).map(|seen| seen.result.clone())
    }

    /// What came under a key, whatever its name.
    pub(crate) fn under(&self, key: &str) -> Option<Value> {
        let ledger = self.ledger();
        let mut found = ledger.iter().filter(|(entry, _)| entry.key == key);
        found.next().map(|(_, seen)| seen.result.clone())
    }

    /// The virtual time, in microseconds since 1970; 0 if it does not matter in this case.
    pub fn now_us(&self) -> u64 {
        self.jitter.as_ref().map_or(0, Runtime::now_us)
    }

    /// Notes a number under a name, over all lives, unless there is one. The one that is there.
    pub fn note(&self, name: &str, number: u64) -> u64 {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        *notes.entry(name.to_owned()).or_insert(number)
    }

    /// Something is wrong: the case has failed.
    pub fn complain(&self, complaint: String) {
        let mut complaints = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        complaints.push(complaint);
    }

    /// How often anything came.
    pub(crate) fn effects(&self) -> u64 {
        self.ledger().values().map(|seen| seen.arrived).sum()
    }

    /// How often something came.
    pub fn arrived(&self, name: &str) -> u64 {
        let ledger = self.ledger();
        let found = ledger.iter().filter(|(entry, _)| entry.name == name);
        found.map(|(_, seen)| seen.arrived).sum()
    }

    /// What is wrong with this world, if the undisturbed one is right.
    pub(crate) fn differs_from(&self, undisturbed: &World) -> Option<String> {
        let complaints = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(complaint) = complaints.first() {
            return Some(complaint.clone());
        }
        let (mine, theirs) = (self.ledger().clone(), undisturbed.ledger().clone());
        for (entry, seen) in &mine {
            let (name, key) = (&entry.name, &entry.key);
            match seen.effect {
                Effect::ReadOnly => continue,
                Effect::Once if seen.arrived > 1 => {
                    return Some(format!(
                        "{name} was sent {} times under {key}",
                        seen.arrived
                    ));
                }
                _ => {}
            }
            if !theirs.contains_key(entry) {
                return Some(format!(
                    "{name} came under {key}, which it did not when nothing was disturbed"
                ));
            }
        }
        let missing = theirs
            .iter()
            .find(|(entry, seen)| seen.effect != Effect::ReadOnly && !mine.contains_key(*entry));
        missing.map(|(entry, _)| format!("{} never came under {}", entry.name, entry.key))
    }
}
