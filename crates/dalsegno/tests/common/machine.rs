//! A machine with a simulated disk and virtual time, whose processes can be killed, and a world
//! outside that counts and can fall silent.
//!
//! Invariant: a process that was killed executes nothing more and writes nothing more; after a
//! power cut only what was synced is left.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dalsegno::testkit::SimRuntime;
use dalsegno::{AttentionKind, Builder, Ctx, Dalsegno, Effect, Error, Journal, Result, Runtime};
use dalsegno_simdisk::{LoseAll, SimDisk};
use dalsegno_store::{LocalStore, Options, Store};
use serde::de::DeserializeOwned;

/// After so many steps of time a test goes round in circles.
const ROUNDS: usize = 10_000;

/// A disk that survives its processes.
#[derive(Clone)]
pub struct Machine {
    pub disk: SimDisk,
    pub runtime: SimRuntime,
    options: Options,
}

impl Machine {
    pub fn new() -> Machine {
        Machine::on(SimDisk::new(1))
    }

    /// With a disk that there was before: a backup that is played back.
    pub fn on(disk: SimDisk) -> Machine {
        Machine {
            disk,
            runtime: SimRuntime::new(1),
            options: Options::new(),
        }
    }

    /// Tasks run in a random order.
    pub fn shuffled(mut self, seed: u64) -> Machine {
        self.runtime = SimRuntime::new(seed).shuffled();
        self
    }

    pub fn with_options(mut self, options: Options) -> Machine {
        self.options = options;
        self
    }

    /// Opens the store as this machine's processes do.
    pub fn open_store(&self) -> LocalStore {
        let clock = self.runtime.clone();
        let options = self.options.clone();
        let options = options.fs(Arc::new(self.disk.clone())).without_threads();
        let options = options.clock(move || clock.now_us());
        options.open(Path::new("store")).unwrap()
    }

    /// Starts a process.
    pub fn start(&self, builder: Builder) -> Process {
        // Starting one takes time.
        self.runtime.set_now_us(self.runtime.now_us() + 1000);
        let store: Arc<dyn Store> = Arc::new(self.open_store());
        self.start_on(builder, store, "a process")
    }

    /// Starts a process on a store that is open.
    pub fn start_on(&self, builder: Builder, store: Arc<dyn Store>, session: &str) -> Process {
        let builder = builder.without_mailbox().session(session);
        let builder = builder.runtime(Arc::new(self.runtime.clone()));
        let opening = async move { builder.open_store(store).await };
        let app = self.runtime.complete(opening, &|| false);
        Process {
            app: app.expect("opening does not wait for time").unwrap(),
            machine: self.clone(),
        }
    }
}

/// A process, from its start to its death.
pub struct Process {
    pub app: Dalsegno,
    machine: Machine,
}

impl Process {
    /// Runs all tasks until each waits for something.
    pub fn settle(&self) {
        self.machine.runtime.run(&|| false);
    }

    /// Does something that needs no time.
    pub fn now<T: Send + 'static>(&self, what: impl Future<Output = T> + Send + 'static) -> T {
        let done = self.machine.runtime.complete(what, &|| false);
        done.expect("it waits for something that does not come")
    }

    /// Starts a run, and lets it go as far as it goes without time passing.
    pub fn begin(&self, agent: &str, run: &str, input: &str) {
        let (app, agent, run) = (self.app.clone(), agent.to_owned(), run.to_owned());
        let input = input.to_owned();
        self.now(async move { app.start(&agent, &run, &input).await.map(drop) })
            .unwrap();
        self.settle();
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        let runtime = &self.machine.runtime;
        let until_us = runtime.now_us() + time.as_micros() as u64;
        runtime.spawn(runtime.sleep_until(until_us));
        self.settle();
        while runtime.now_us() < until_us {
            assert!(runtime.advance());
            self.settle();
        }
    }

    pub fn journal(&self, run: &str) -> Journal {
        let (app, run) = (self.app.clone(), run.to_owned());
        self.now(async move { app.journal(&run).await }).unwrap()
    }

    /// How many events a run has.
    pub fn head(&self, run: &str) -> u64 {
        self.journal(run).last
    }

    /// Why a run needs a person.
    pub fn attention(&self, run: &str) -> (AttentionKind, String) {
        let attention = self.journal(run).attention;
        let attention = attention.expect("it needs a person");
        (attention.kind, attention.reason)
    }

    /// Approves, as `ann`.
    pub fn approve(&self, run: &str, approval: &str) -> Result<(), Error> {
        let (app, run) = (self.app.clone(), run.to_owned());
        let approval = approval.to_owned();
        let said = self.now(async move { app.approve(&run, &approval, "ann").await });
        self.settle();
        said
    }

    /// Lets time pass until a run has ended or needs a person.
    pub fn end<T: DeserializeOwned + Send + 'static>(&self, run: &str) -> Result<T, Error> {
        for _ in 0..ROUNDS {
            self.settle();
            let journal = self.journal(run);
            if journal.status.is_final() || journal.attention.is_some() {
                let (app, run) = (self.app.clone(), run.to_owned());
                return self.now(async move { app.find(&run).await?.result().await });
            }
            if !self.machine.runtime.advance() {
                panic!("{run} stands still and waits for {:?}", journal.waits);
            }
        }
        panic!("{run} goes round in circles");
    }

    /// The power goes: what was not synced is lost.
    pub fn power_cut(self) {
        self.machine.disk.power_off_now();
        self.machine.runtime.kill();
        drop(self.app);
        self.machine.disk.reboot(&mut LoseAll);
    }

    /// The process is killed, the machine goes on: what was written is there.
    pub fn kill(self) {
        self.machine.disk.power_off_now();
        self.machine.runtime.kill();
        drop(self.app);
        self.machine.disk.restart_process();
    }
}

/// The world outside: it sees requests, and may do what it is asked without answering.
#[derive(Clone, Default)]
pub struct Outside(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    requests: Vec<(String, String, String)>,
    silent: BTreeSet<String>,
}

impl Outside {
    /// A request, under a key, about something. It is done; the answer may never come.
    pub async fn ask(&self, name: &str, key: &str, about: &str) {
        let silent = {
            let mut seen = self.0.lock().unwrap();
            let request = (name.to_owned(), key.to_owned(), about.to_owned());
            seen.requests.push(request);
            seen.silent.contains(name)
        };
        if silent {
            std::future::pending().await
        }
    }

    /// From now on requests of this name get no answer.
    pub fn falls_silent(&self, name: &str) {
        self.0.lock().unwrap().silent.insert(name.to_owned());
    }

    /// Everything is answered again.
    pub fn answers(&self) {
        self.0.lock().unwrap().silent.clear();
    }

    /// How often something was asked for.
    pub fn count(&self, name: &str) -> usize {
        let seen = self.0.lock().unwrap();
        seen.requests.iter().filter(|r| r.0 == name).count()
    }

    /// Under which keys: what a side that knows keys has done once each.
    pub fn keys(&self, name: &str) -> BTreeSet<String> {
        let seen = self.0.lock().unwrap();
        let asked = seen.requests.iter().filter(|r| r.0 == name);
        asked.map(|request| request.1.clone()).collect()
    }

    /// What it was about, in the order in which it came.
    pub fn about(&self, name: &str) -> Vec<String> {
        let seen = self.0.lock().unwrap();
        let asked = seen.requests.iter().filter(|r| r.0 == name);
        asked.map(|request| request.2.clone()).collect()
    }

    /// All requests so far.
    pub fn total(&self) -> usize {
        self.0.lock().unwrap().requests.len()
    }
}

/// A tool that asks the world, and gives what it was asked about.
pub fn tool(
    ctx: &Ctx,
    outside: &Outside,
    effect: Effect,
    name: &str,
    about: &str,
) -> impl Future<Output = Result<String>> + Send + use<> {
    let step = ctx.tool(name).effect(effect).input(about);
    let (outside, name, about) = (outside.clone(), name.to_owned(), about.to_owned());
    step.call(move |call| {
        let (outside, name, about) = (outside.clone(), name.clone(), about.clone());
        async move {
            outside.ask(&name, call.key(), &about).await;
            Ok(about)
        }
    })
}

/// An agent made of an async function of its context, the world and a text.
pub fn agent<F, Fut, O>(builder: Builder, name: &str, outside: &Outside, code: F) -> Builder
where
    F: Fn(Ctx, Outside, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O>> + Send + 'static,
    O: serde::Serialize + 'static,
{
    let outside = outside.clone();
    builder.agent(name, move |ctx: Ctx, input: String| {
        code(ctx, outside.clone(), input)
    })
}
