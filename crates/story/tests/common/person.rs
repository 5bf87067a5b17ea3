//! The person of the story, in a thread of the test: another process than the one that is killed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use dalsegno_story::person::{Person, Said};

use super::campaign::Happening;

/// How often a person looks: there is no event to wait for in another process's store.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

pub struct Desk {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Said>>,
}

impl Desk {
    /// Answers runs until it is told to stop. What a person cannot answer is sent.
    pub fn open(store: PathBuf, world: String, trouble: Sender<Happening>) -> Desk {
        Desk::with(move || Person::open(&store, &world).ok(), trouble)
    }

    /// The same with a person who comes as soon as they can.
    pub fn with(
        come: impl Fn() -> Option<Person> + Send + 'static,
        trouble: Sender<Happening>,
    ) -> Desk {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.unwrap();
            let mut person = None;
            while !stopped.load(Ordering::SeqCst) {
                if person.is_none() {
                    // The first process has to make the store first.
                    person = come();
                }
                if let Some(person) = &mut person
                    && let Err(at_a_loss) = runtime.block_on(person.look())
                {
                    drop(trouble.send(Happening::Trouble(at_a_loss.0)));
                    return person.said;
                }
                std::thread::sleep(LOOKS_EVERY);
            }
            person.map_or_else(Said::default, |person| person.said)
        });
        Desk {
            stop,
            thread: Some(thread),
        }
    }

    pub fn close(mut self) -> Said {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
