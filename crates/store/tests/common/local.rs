//! Local stores for tests: folders on the real disk, child processes, checks of everything in a
//! store.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use dalsegno_store::{
    Append, Appended, Fields, Hash, Kind, LocalStore, NewEvent, Options, Recorded, RunQuery, Store,
    StoreError, StreamId, StreamKind, Version,
};

/// An empty folder on the real disk. It goes when the test has passed and stays when it failed.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{name}-{}-{count}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// The store in this folder; not there yet.
    pub fn store(&self) -> PathBuf {
        self.0.join("store")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("left for a look: {}", self.0.display());
        } else {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }
}

/// The seed in `DALSEGNO_SEED`, or a new one. A test prints it, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("DALSEGNO_SEED").ok();
    let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        now.as_nanos() as u64
    });
    println!("DALSEGNO_SEED={seed}");
    seed
}

/// This test program again, running only its ignored test `name`: that one is no test but what a
/// child process of the others does.
pub fn this_program(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(this_program_args(name));
    command
}

pub fn this_program_args(name: &str) -> [&str; 5] {
    [name, "--exact", "--ignored", "--nocapture", "--quiet"]
}

/// Takes the lines of the test framework's out of what a child printed: ours begin with `@`.
pub fn reported(line: &str) -> Option<&str> {
    line.split_once('@').map(|(_, text)| text)
}

/// Small segments, so that there are many.
pub fn options() -> Options {
    Options::new().segment_bytes(32 << 10)
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

pub fn run(name: &str) -> StreamId {
    StreamId::run(name).unwrap()
}

pub fn memory(name: &str) -> StreamId {
    StreamId::memory(name).unwrap()
}

/// An event of the user's own, with a number.
pub fn noted(number: u64) -> NewEvent {
    let fields = Fields::new().with(1, number);
    NewEvent::new(Kind::User("noted".into())).with_fields(fields)
}

pub fn try_append(
    store: &LocalStore,
    stream: &StreamId,
    events: Vec<NewEvent>,
) -> Result<Appended, StoreError> {
    block_on(store.append(vec![Append::to(stream.clone(), events)]))
}

pub fn append(store: &LocalStore, stream: &StreamId, events: Vec<NewEvent>) -> Appended {
    try_append(store, stream, events).unwrap()
}

pub fn durable(store: &LocalStore) {
    let position = block_on(store.position()).unwrap();
    block_on(store.durable(position)).unwrap();
}

/// All events of a stream, checked to be the chain that its head says.
pub fn all(store: &LocalStore, stream: &StreamId) -> Vec<Recorded> {
    let events = block_on(store.read(stream, 1, usize::MAX)).unwrap();
    assert_eq!(
        check_chain(stream, &events),
        block_on(store.head(stream)).unwrap()
    );
    events
}

/// Checks that events are a chain from its first on; where it ends.
pub fn check_chain(stream: &StreamId, events: &[Recorded]) -> Option<Version> {
    let mut version = Version::START;
    for recorded in events {
        version = version.after(&recorded.event.encode());
        assert_eq!(recorded.event.stream, *stream);
        assert_eq!(recorded.event.sequence, version.sequence, "{stream}");
        assert_eq!(recorded.hash, version.hash, "{stream}");
    }
    (!events.is_empty()).then_some(version)
}

/// A hash over everything that can be read: all streams with all events and payloads, all lists.
pub fn everything(store: &LocalStore) -> Hash {
    let mut text = String::new();
    for kind in [StreamKind::Run, StreamKind::Memory, StreamKind::Store] {
        for (stream, head) in block_on(store.streams(kind, None, 0)).unwrap() {
            text += &format!("{stream} {head:?}\n");
            for recorded in all(store, &stream) {
                text += &format!("{recorded:?}\n");
                for payload in recorded.event.payloads() {
                    let bytes = block_on(store.payload(payload)).unwrap();
                    text += &format!("{}\n", Hash::of(&bytes));
                }
            }
        }
    }
    let runs = block_on(store.runs(&RunQuery::default())).unwrap();
    text += &format!("{runs:?} {}", store.state_digest());
    Hash::of(text.as_bytes())
}

/// A store with some of everything: runs that go on and that have ended, in several segments and
/// with several snapshots.
pub fn fill(store: &LocalStore) {
    use dalsegno_store::NewPayload;
    for number in 0..12_u64 {
        let run = run(&format!("r{number}"));
        let text = format!("payload {number} ").repeat(400 + number as usize);
        let step = NewEvent::new(Kind::StepSucceeded).with_output(NewPayload::json(text));
        append(
            store,
            &run,
            vec![NewEvent::new(Kind::RunCreated), noted(number), step],
        );
        append(store, &memory("notes"), vec![noted(number)]);
        if number % 2 == 0 {
            append(store, &run, vec![NewEvent::new(Kind::RunCompleted)]);
        }
        if number % 4 == 3 {
            store.seal().unwrap();
        }
    }
    append(store, &memory("notes"), vec![noted(99)]);
    durable(store);
}

/// The files of a folder of the store, in the order of their names.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Changes one byte in the middle of a file.
pub fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}
