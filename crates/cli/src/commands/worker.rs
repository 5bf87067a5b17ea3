//! `dalsegno worker`: executes runs of a store in a database, with commands as agents.
//!
//! Which runs are taken, for how long, and what becomes of them when the worker ends, is the library's
//! (`engine/claims.rs`): an agent here is one that starts a command and answers its steps.
//!
//! | file | what |
//! |---|---|
//! | `agent.rs` | a run: the lives of its command, restarts, its result |
//! | `life.rs` | one process of it |
//! | `socket.rs` | what its steps ask for |
//! | `groups.rs` | that none outlives its worker |
//! | `say.rs` | the log |
//!
//! Invariant: no command outlives the worker; if the worker is killed, no step of one does. What else a
//! script has started may live on then, and can begin no step.

use std::collections::BTreeSet;
use std::sync::Arc;

use dalsegno::{Builder, Dalsegno, Durability};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::step::AGENT;
use crate::address::Place;
use crate::args::Global;
use crate::args::worker::WorkerArgs;
use crate::exit::{Error, Exit, Result};
use crate::open::{self, Opened};
use crate::output::Out;
use crate::output::text::shown;
use crate::runtime;

mod agent;
mod groups;
mod life;
mod say;
mod socket;

use agent::{AgentCommand, Shared};
use say::Say;

/// Executes runs until it is told to end.
///
/// # Errors
/// The store is in a folder, cannot be opened or cannot be written.
pub fn run(args: &WorkerArgs, global: &Global, out: &mut Out) -> Result<Exit> {
    if let Place::Folder(_) = Place::of(&global.store) {
        return Err(Error::usage(
            "a worker needs a store in a database, and this one is in a folder, which has one owner",
        )
        .hint("`dalsegno exec` runs an agent that owns its store, or a script of steps"));
    }
    check(args)?;
    let say = Say {
        json: out.is_json(),
    };
    runtime::block_on(async {
        let cannot_listen = |e| Error::failed(format!("cannot take over signals: {e}"));
        let mut told = Told::new().map_err(cannot_listen)?;
        let opened = open::for_worker(&global.store)?;
        opened.check_writable().await?;
        let shared = Arc::new(Shared {
            store: opened.store(),
            place: open::absolute(global),
            sockets: socket::Folder::make().map_err(|e| {
                Error::failed(format!("cannot make a folder for sockets: {e}"))
                    .hint("TMPDIR names the folder for temporary files")
            })?,
            groups: Arc::default(),
            say,
            max_restarts: args.max_restarts,
            backoff: args.backoff,
            max_backoff: args.max_backoff,
        });
        let app = builder(args, &shared).open_store(opened.store()).await?;
        let names: Vec<_> = args.agents.iter().map(|(name, _)| name.as_str()).collect();
        say.of_worker("ready", &format!("takes runs of {}", names.join(", ")));
        told.next().await;
        end(args, app, &shared, &opened, told).await
    })
}

/// What clap cannot see.
fn check(args: &WorkerArgs) -> Result<()> {
    let mut known = BTreeSet::new();
    for (name, _) in &args.agents {
        if name == AGENT {
            let what = format!("runs of agent {AGENT} are those of scripts that are run by hand");
            return Err(Error::usage(what).hint("give the agent another name"));
        }
        if !known.insert(name) {
            let what = format!("agent {:?} is given twice", shown(name));
            return Err(Error::usage(what).hint("an agent has one command"));
        }
    }
    for (name, _) in &args.max_running_of {
        if !known.contains(name) {
            let what = format!(
                "--max-running-of names {:?}, which is no agent",
                shown(name)
            );
            return Err(Error::usage(what).hint("name one that --agent names"));
        }
    }
    Ok(())
}

fn builder(args: &WorkerArgs, shared: &Arc<Shared>) -> Builder {
    let mut builder = Dalsegno::builder()
        .durability(Durability::Strict)
        .session(&name())
        .queues(args.queues.iter().map(String::as_str))
        .max_running(args.max_running)
        .lease(args.lease);
    for (name, limit) in &args.max_running_of {
        builder = builder.max_running_of(name, *limit);
    }
    for (name, command) in &args.agents {
        let (name, command) = (name.clone(), command.clone());
        let agent = Arc::new(AgentCommand { name, command });
        let shared = Arc::clone(shared);
        builder = builder.script(&agent.name.clone(), move |run, input| {
            agent::execute(Arc::clone(&shared), Arc::clone(&agent), run, input)
        });
    }
    builder
}

/// Who holds runs, for people.
fn name() -> String {
    let pid = std::process::id();
    match std::fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(host) => format!("dalsegno worker, process {pid} on {}", shown(host.trim())),
        Err(_) => format!("dalsegno worker, process {pid}"),
    }
}

/// Hands over what there is.
async fn end(
    args: &WorkerArgs,
    app: Dalsegno,
    shared: &Shared,
    opened: &Opened,
    mut told: Told,
) -> Result<Exit> {
    let (say, groups) = (shared.say, &shared.groups);
    let message = format!("told to end, steps under way have {:?}", args.grace);
    say.of_worker("draining", &message);
    let (closed, exit) = tokio::select! {
        closed = app.close_within(args.grace) => (closed, Exit::Done),
        () = told.next() => (Ok(()), Exit::Interrupted),
    };
    if exit == Exit::Done {
        // Those whose runs were handed over have been asked to end.
        let left = async {
            tokio::select! {
                () = groups.all_left() => {}
                () = told.next() => {}
            }
        };
        left.await;
    }
    if groups.count() > 0 {
        let why = match exit {
            Exit::Done => "commands that have not ended in time",
            _ => "told to end a second time",
        };
        say.of_worker("killing", why);
    }
    // Before anybody else can take their runs.
    groups.kill_all();
    let let_go = opened.close();
    say.of_worker("stopped", "told to end");
    closed?;
    let_go?;
    Ok(exit)
}

/// That it is to end.
struct Told {
    terminate: Signal,
    interrupt: Signal,
}

impl Told {
    fn new() -> std::io::Result<Told> {
        Ok(Told {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
