//! The world outside: services that the agent asks, and that keep count.
//!
//! | request | what it does | for steps that are |
//! |---|---|---|
//! | `GET /weather`, `/stock`, `/news` | tells something that depends on the run only | `read_only` |
//! | `POST /model` | answers a prompt, the same for the same one | a model call |
//! | `POST /notifications` | notifies somebody, each time that it is asked | `once` |
//! | `GET /notifications/<key>` | says whether it did: the probe | |
//! | `POST /bookings` | books, once for each key | `idempotent` |
//!
//! For who runs the story: `GET /ledger`, `GET /arrivals` (how many requests are in it), `GET
//! /wait?arrivals=N`, which answers when there are so many, `GET /seen/<key>` (the probe, but never
//! switched off), `POST /probe/on` and `/probe/off`.
//!
//! Every request says under which fencing token its worker has the run (`x-fence`). The world
//! remembers the highest of each run, and refuses what comes under a lower one.
//!
//! Invariant: a worker that was overtaken cannot act on the world later than its successor asks, be
//! it dead or only stopped for a while: the question itself raises the fence. Who has no token, as a
//! person, is told only when every connection that was made before is done with.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

use crate::http::{Reply, Request};
use crate::ledger::{Entry, Ledger, now_us};

/// Replies take up to this long, half of it before anything is done: time to be killed in.
const LONGEST_US: u64 = 4000;

/// How the services behave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// How long every reply takes, half of it before anything is done; without it a time that
    /// differs, up to four milliseconds.
    pub pace: Option<Duration>,
    /// The request of this number is done and not answered, for as long as who asked is alive (or
    /// half a minute): whoever is to be killed in the middle of it cannot be missed.
    pub holds: Option<u64>,
    /// Every notification goes out twice: a fault, for who must find it.
    pub notifies_twice: bool,
}

/// The services, and what is known of the requests to them.
#[derive(Debug)]
pub struct World {
    manner: Manner,
    ledger: Mutex<Ledger>,
    arrived: Condvar,
    /// The highest token of each run.
    fences: Mutex<HashMap<String, u64>>,
    /// Connections that are not done with, by their number.
    open: Mutex<BTreeSet<u64>>,
    closed: Condvar,
    probe: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// With an empty ledger in a file.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new(ledger: &Path) -> std::io::Result<Arc<World>> {
        World::with(ledger, Manner::default())
    }

    /// The same, in a manner.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn with(ledger: &Path, manner: Manner) -> std::io::Result<Arc<World>> {
        Ok(Arc::new(World {
            manner,
            ledger: Mutex::new(Ledger::create(ledger)?),
            arrived: Condvar::new(),
            fences: Mutex::default(),
            open: Mutex::default(),
            closed: Condvar::new(),
            probe: AtomicBool::new(true),
        }))
    }

    /// Answers requests for as long as the process lives, in threads of its own.
    pub fn serve(self: Arc<Self>, listener: TcpListener) {
        spawn(move || {
            for (number, stream) in (0..).zip(listener.incoming()) {
                let Ok(stream) = stream else { continue };
                // Numbered here, where they come in order.
                lock(&self.open).insert(number);
                let world = Arc::clone(&self);
                spawn(move || {
                    let connection = Connection { world, number };
                    connection.answer(&stream);
                });
            }
        });
    }

    /// Writes a request down, and gives its number; `None` if it is refused.
    fn add(
        &self,
        mut entry: Entry,
        fence: Option<u64>,
        once_per_key: bool,
    ) -> std::io::Result<Option<u64>> {
        let mut ledger = lock(&self.ledger);
        // Under the ledger's lock: between the question and the entry nobody raises a fence.
        entry.refused = !self.passes(&entry.run, fence);
        let done_before = once_per_key && ledger.has_applied(&entry.what, &entry.key);
        entry.applied = !entry.refused && !done_before;
        let refused = entry.refused;
        ledger.add(entry)?;
        let number = ledger.entries().len() as u64;
        drop(ledger);
        self.arrived.notify_all();
        Ok((!refused).then_some(number))
    }

    /// Whether nobody has come under a higher token for this run, and now nobody under a lower one
    /// will.
    fn passes(&self, run: &str, fence: Option<u64>) -> bool {
        let Some(token) = fence else { return true };
        let mut fences = lock(&self.fences);
        let highest = fences.entry(run.to_owned()).or_default();
        *highest = token.max(*highest);
        *highest == token
    }

    fn wait_for_arrivals(&self, count: usize) {
        let ledger = lock(&self.ledger);
        let wait = self
            .arrived
            .wait_timeout_while(ledger, Duration::from_secs(30), |ledger| {
                ledger.entries().len() < count
            });
        drop(wait);
    }
}

/// One connection, with its number.
struct Connection {
    world: Arc<World>,
    number: u64,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.done();
    }
}

impl Connection {
    /// From here on it does nothing more to the world.
    fn done(&self) {
        lock(&self.world.open).remove(&self.number);
        self.world.closed.notify_all();
    }

    /// Waits until all connections before this one are done with.
    fn wait_for_earlier(&self) {
        let open = lock(&self.world.open);
        let earlier =
            |open: &mut BTreeSet<u64>| open.first().is_some_and(|first| *first < self.number);
        drop(self.world.closed.wait_while(open, earlier));
    }

    fn answer(&self, stream: &TcpStream) {
        // Half a request is none.
        let Ok(request) = Request::read(&mut BufReader::new(stream)) else {
            return;
        };
        let reply = match self.handle(&request, stream) {
            Ok(reply) => reply,
            Err(e) => Reply::new(500, e.to_string()),
        };
        // Who asked may be dead.
        drop(reply.write(&mut &*stream));
    }

    fn handle(&self, request: &Request, stream: &TcpStream) -> std::io::Result<Reply> {
        let world = &*self.world;
        let path = request.path.as_str();
        let entry = |what: &str| Entry {
            what: what.to_owned(),
            run: request.get_header("x-run").to_owned(),
            step: request.get_header("x-step").to_owned(),
            key: request.get_header("idempotency-key").to_owned(),
            worker: request.get_header("x-worker").to_owned(),
            applied: false,
            refused: false,
            time_us: now_us(),
        };
        let fence: Option<u64> = request.get_header("x-fence").parse().ok();
        let service = |what: &str, once_per_key: bool, reply: String| {
            let entry = entry(what);
            let (before, after) = world.manner.pauses(&entry);
            sleep(before);
            if world.manner.notifies_twice && what == "notify" {
                world.add(entry.clone(), fence, once_per_key)?;
            }
            let Some(number) = world.add(entry, fence, once_per_key)? else {
                return Ok(Reply::new(409, "another worker has this run"));
            };
            if world.manner.holds == Some(number) {
                wait_for_close(stream);
            }
            sleep(after);
            Ok(Reply::new(200, reply))
        };
        let run = request.get_header("x-run");
        match (request.method.as_str(), path) {
            ("GET", "/weather" | "/stock" | "/news") => {
                let what = &path[1..];
                service(
                    what,
                    false,
                    format!("{what} for {run}: {}", word(&[what, run])),
                )
            }
            ("POST", "/model") => {
                let prompt = String::from_utf8_lossy(&request.body);
                service(
                    "model",
                    false,
                    format!("thought {}", word(&["model", &prompt])),
                )
            }
            ("POST", "/notifications") => service("notify", false, receipt("notified", request)),
            ("POST", "/bookings") => service("book", true, receipt("booked", request)),
            ("GET", "/ledger") => {
                self.wait_for_earlier();
                Ok(Reply::new(200, lock(&world.ledger).to_lines()))
            }
            ("GET", "/arrivals") => {
                self.wait_for_earlier();
                let count = lock(&world.ledger).entries().len();
                Ok(Reply::new(200, count.to_string()))
            }
            ("POST", "/probe/on" | "/probe/off") => {
                world.probe.store(path == "/probe/on", Ordering::SeqCst);
                Ok(Reply::new(200, ""))
            }
            _ => Ok(self.asked(path, request.get_header("x-run"), fence)),
        }
    }

    /// Questions with something in their path.
    fn asked(&self, path: &str, run: &str, fence: Option<u64>) -> Reply {
        let world = &*self.world;
        if let Some(count) = path.strip_prefix("/wait?arrivals=") {
            // It does nothing to the world, and nobody has to wait for it.
            self.done();
            world.wait_for_arrivals(count.parse().unwrap_or(0));
            return Reply::new(200, "");
        }
        let probe = path.strip_prefix("/notifications/");
        if probe.is_some() && !world.probe.load(Ordering::SeqCst) {
            return Reply::new(503, "nobody here can tell");
        }
        match probe.or(path.strip_prefix("/seen/")) {
            Some(key) => {
                if fence.is_none() {
                    self.wait_for_earlier();
                }
                let ledger = lock(&world.ledger);
                if !world.passes(run, fence) {
                    return Reply::new(409, "another worker has this run");
                }
                match ledger.has_applied("notify", key) {
                    true => Reply::new(200, format!("notified {key}")),
                    false => Reply::new(404, ""),
                }
            }
            None => Reply::new(404, format!("nothing is at {path}")),
        }
    }
}

/// Waits until the other side is gone.
fn wait_for_close(mut stream: &TcpStream) {
    drop(stream.set_read_timeout(Some(Duration::from_secs(30))));
    drop(stream.read(&mut [0]));
}

/// What somebody gets for a request that changes something: the same for the same key.
fn receipt(did: &str, request: &Request) -> String {
    format!("{did} {}", request.get_header("idempotency-key"))
}

/// Eight digits that depend on nothing but these.
fn word(of: &[&str]) -> String {
    let hex = blake3::hash(of.join("\n").as_bytes()).to_hex();
    hex[..8].to_owned()
}

impl Manner {
    /// How long a request takes before and after something is done about it.
    fn pauses(&self, entry: &Entry) -> (Duration, Duration) {
        if let Some(pace) = self.pace {
            return (pace / 2, pace / 2);
        }
        let arrival = entry.time_us.to_string();
        let parts = [&entry.what, &entry.run, &arrival].map(String::as_str);
        let hash = blake3::hash(parts.concat().as_bytes());
        let part = |at: usize| {
            let us = u64::from(hash.as_bytes()[at]) * (LONGEST_US / 2) / 256;
            Duration::from_micros(us)
        };
        (part(0), part(1))
    }
}
