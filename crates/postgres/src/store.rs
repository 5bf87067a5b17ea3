//! The handle: a [`Store`] whose work is done by a runtime of its own.
//!
//! Invariants: an operation that writes goes on to its end also if who asked for it does not wait.
//! What is answered from memory, and waiting, needs no runtime of the caller's.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dalsegno_store::mailbox::NewLetter;
use dalsegno_store::payload::Piece;
use dalsegno_store::{
    Answer, Append, Appended, Claim, Event, Foreign, Hash, Lease, LetterRef, LettersTaken, Limits,
    NewHelper, Payload, Position, Recorded, Retention, Retired, RunInfo, RunQuery, Store,
    StoreError, StreamId, StreamKind, Timer, Version, engine,
};
use tokio::runtime::Runtime;

use crate::about::AboutDatabase;
use crate::append::Queued;
use crate::error::Trouble;
use crate::inner::Inner;
use crate::memory::Memory;
use crate::options::{Address, PostgresOptions};
use crate::pool::Pool;
use crate::verify::PostgresReport;
use crate::{flush, schema, wake};

/// So long closing waits for the database.
const CLOSING: Duration = Duration::from_secs(10);

/// A store in PostgreSQL, which many processes on many machines can have open.
///
/// Cloning gives another handle to the same store. When the last one is dropped, what was appended
/// is sent and what is held is given back; [`PostgresStore::close`] does the same and says whether it
/// worked.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    open: Arc<Open>,
}

#[derive(Debug)]
struct Open {
    inner: Arc<Inner>,
    runtime: Option<Runtime>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Who wants to know calls `close`.
        drop(self.close());
        if let Some(runtime) = self.runtime.take() {
            // Dropping it would block, which not every caller may.
            runtime.shutdown_background();
        }
    }
}

impl Open {
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let task = self.runtime.as_ref().map(|runtime| runtime.spawn(work));
        match task {
            Some(task) => task.await.unwrap_or(Err(StoreError::Closed)),
            None => Err(StoreError::Closed),
        }
    }

    fn close(&self) -> Result<(), StoreError> {
        let Some(runtime) = &self.runtime else {
            return Ok(());
        };
        let (done, closed) = std::sync::mpsc::channel();
        let inner = Arc::clone(&self.inner);
        runtime.spawn(async move { drop(done.send(inner.close().await)) });
        closed
            .recv_timeout(CLOSING + Duration::from_secs(1))
            .unwrap_or(Err(StoreError::Closed))
    }
}

impl Inner {
    async fn close(&self) -> Result<(), StoreError> {
        if self.memory().closed {
            return Ok(());
        }
        let last = self.memory().position;
        let sent = tokio::time::timeout(CLOSING, self.durable(last)).await;
        let given_up = tokio::time::timeout(CLOSING, self.give_up_leases()).await;
        if self.options.notifications && matches!(given_up, Ok(Ok(()))) {
            // What was given up may go on elsewhere.
            drop(tokio::time::timeout(CLOSING, wake::notify_once(self)).await);
        }
        self.memory().closed = true;
        self.moved.notify_waiters();
        self.changed.notify_waiters();
        self.work.notify_one();
        self.news.notify_one();
        self.pool.close();
        let unreachable = || {
            StoreError::Backend(
                "PostgreSQL cannot be reached: what was appended last is not recorded".into(),
            )
        };
        match sent {
            // Only what was fenced is not there, and who appended it was or will be told.
            Ok(Ok(()) | Err(StoreError::Fenced { .. })) => {}
            Ok(Err(e)) => return Err(e),
            Err(_) => return Err(unreachable()),
        }
        match given_up {
            Ok(Err(Trouble::Store(e))) => Err(e),
            // Their time will come to an end.
            _ => Ok(()),
        }
    }
}

impl PostgresStore {
    /// Opens the store at an address such as `postgres://user:password@host:5432/database`, and makes
    /// it if there is none. It is in the schema `dalsegno`, or in that of `?schema=name`.
    ///
    /// A pooler between it and the server must give it whole sessions. One that gives each transaction
    /// another connection loses the schema and the prepared statements of a session.
    ///
    /// # Errors
    /// As [`PostgresOptions::open`].
    pub fn open(url: &str) -> Result<PostgresStore, StoreError> {
        PostgresOptions::new().open(url)
    }

    pub(crate) fn open_with(
        address: &Address,
        options: &PostgresOptions,
    ) -> Result<PostgresStore, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("dalsegno-postgres")
            .enable_all()
            .build();
        let runtime = runtime
            .map_err(|e| StoreError::Backend(format!("no threads for the connections: {e}")))?;
        let (done, prepared) = std::sync::mpsc::channel();
        let (asked, existing_only) = (address.clone(), options.existing_only);
        runtime.spawn(async move {
            drop(done.send(schema::prepare(&asked, existing_only).await));
        });
        let first = match prepared.recv().unwrap_or(Err(StoreError::Closed)) {
            Ok(first) => first,
            Err(e) => {
                runtime.shutdown_background();
                return Err(e);
            }
        };
        let pool = Pool::new(address.clone(), options.connections, first);
        let inner = Arc::new(Inner::new(pool, options.clone()));
        runtime.spawn(flush::flush(Arc::clone(&inner)));
        if options.notifications {
            runtime.spawn(wake::notify(Arc::clone(&inner)));
            runtime.spawn(wake::listen(Arc::clone(&inner)));
        }
        runtime.spawn(wake::poll(Arc::clone(&inner)));
        let runtime = Some(runtime);
        let open = Arc::new(Open { inner, runtime });
        Ok(PostgresStore { open })
    }

    /// Sends what is queued, gives back what is held, and lets the connections go. Other handles get
    /// errors from then on.
    ///
    /// # Errors
    /// The database could not be reached in time: what was appended and not waited for may be lost.
    pub fn close(&self) -> Result<(), StoreError> {
        self.open.close()
    }

    /// Lets finished runs go, as [`LocalStore::retire`](dalsegno_store::LocalStore::retire) does.
    /// Appends and reads go on meanwhile. Sizes are not counted: PostgreSQL gives the space to others
    /// when it is vacuumed.
    ///
    /// # Errors
    /// The database could not be reached, or an archive was asked for.
    pub fn retire<'a>(&'a self, retention: &'a Retention) -> Answer<'a, Retired> {
        let retention = *retention;
        self.run(move |inner| async move { inner.retire(&retention).await })
    }

    /// Reads all of it, and names what is not as it was written. Changes nothing, and is in nobody's
    /// way: what is read is what was there when it began. `progress` is told how many events were
    /// read.
    ///
    /// # Errors
    /// The database could not be reached.
    pub fn verify(
        &self,
        progress: impl Fn(u64) + Send + Sync + 'static,
    ) -> Answer<'_, PostgresReport> {
        self.run(move |inner| async move { inner.verify(&progress).await })
    }

    /// What the database says about itself and about the store.
    ///
    /// # Errors
    /// The database could not be reached.
    pub fn about(&self) -> Answer<'_, AboutDatabase> {
        self.run(|inner| async move { inner.about().await })
    }

    /// Fails, with what to do, if this user may not write what a worker has to. For who would otherwise
    /// find out with the first run that it takes.
    ///
    /// # Errors
    /// That, or the database could not be reached.
    pub fn check_writable(&self) -> Answer<'_, ()> {
        self.run(|inner| async move { inner.check_writable().await })
    }

    /// Waits until notifications of others are heard. Before that, and whenever the connection for
    /// them is lost, changes are seen by looking. For tests.
    pub fn wait_until_it_listens(&self) {
        while !self.inner().listens.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.open.inner
    }

    /// Does something with the database, to its end.
    fn run<'a, T, F>(&'a self, work: impl FnOnce(Arc<Inner>) -> F + Send + 'a) -> Answer<'a, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        Box::pin(async move {
            self.inner().check_open()?;
            self.open.run(work(Arc::clone(self.inner()))).await
        })
    }
}

impl Store for PostgresStore {
    fn limits(&self) -> Limits {
        self.inner().options.limits
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn append(&self, batch: Vec<Append>) -> Answer<'_, Appended> {
        Box::pin(async move {
            let inner = self.inner();
            engine::check_streams(&batch)?;
            inner.check_open()?;
            let prepared = inner.prepare(batch)?;
            match inner.append_held(prepared).await {
                Queued::Done(done) => done,
                Queued::NotHeld(prepared) => {
                    let inner = Arc::clone(inner);
                    let work = async move { inner.append_in_transaction(&prepared).await };
                    self.open.run(work).await
                }
            }
        })
    }

    fn durable(&self, position: Position) -> Answer<'_, ()> {
        Box::pin(self.inner().durable(position))
    }

    fn head<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<Version>> {
        let stream = stream.clone();
        self.run(|inner| async move { inner.head(&stream).await })
    }

    fn read<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Recorded>> {
        let stream = stream.clone();
        self.run(move |inner| async move { inner.read(&stream, from, limit).await })
    }

    fn events<'a>(
        &'a self,
        stream: &'a StreamId,
        from: u64,
        limit: usize,
    ) -> Answer<'a, Vec<Event>> {
        let stream = stream.clone();
        self.run(move |inner| async move { inner.events(&stream, from, limit).await })
    }

    fn payload<'a>(&'a self, payload: &'a Payload) -> Answer<'a, Vec<u8>> {
        let payload = payload.clone();
        self.run(|inner| async move { inner.payload(&payload).await })
    }

    fn pieces<'a>(&'a self, hashes: &'a [Hash]) -> Answer<'a, Vec<Vec<u8>>> {
        let hashes = hashes.to_vec();
        self.run(|inner| async move { inner.pieces(&hashes).await })
    }

    fn take_over(&self, pieces: Vec<Piece>, streams: Vec<Foreign>) -> Answer<'_, Position> {
        self.run(|inner| async move { inner.take_over(&pieces, &streams).await })
    }

    fn erase_forgotten<'a>(&'a self, stream: &'a StreamId, said_at: u64) -> Answer<'a, u64> {
        let stream = stream.clone();
        self.run(move |inner| async move { inner.erase_forgotten(&stream, said_at).await })
    }

    fn begin_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, Option<u64>> {
        let stream = stream.clone();
        self.run(|inner| async move { inner.begin_helpers(&stream).await })
    }

    fn keep_helper<'a>(
        &'a self,
        stream: &'a StreamId,
        begun: u64,
        helper: NewHelper,
    ) -> Answer<'a, bool> {
        let stream = stream.clone();
        self.run(move |inner| async move { inner.keep_helper(&stream, begun, &helper).await })
    }

    fn helper<'a>(&'a self, stream: &'a StreamId, name: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        let (stream, name) = (stream.clone(), name.to_owned());
        self.run(|inner| async move { inner.helper(&stream, &name).await })
    }

    fn drop_helpers<'a>(&'a self, stream: &'a StreamId) -> Answer<'a, ()> {
        let stream = stream.clone();
        self.run(|inner| async move { inner.drop_helpers(&stream).await })
    }

    fn let_go_on<'a>(&'a self, runs: &'a [StreamId]) -> Answer<'a, ()> {
        let runs = runs.to_vec();
        self.run(|inner| async move { inner.let_go_on(&runs).await })
    }

    fn streams<'a>(
        &'a self,
        kind: StreamKind,
        after: Option<&'a StreamId>,
        limit: usize,
    ) -> Answer<'a, Vec<(StreamId, Version)>> {
        let after = after.cloned();
        self.run(move |inner| async move { inner.streams(kind, after.as_ref(), limit).await })
    }

    fn runs<'a>(&'a self, query: &'a RunQuery) -> Answer<'a, Vec<RunInfo>> {
        let query = query.clone();
        self.run(|inner| async move { inner.runs(&query).await })
    }

    fn take_lease<'a>(
        &'a self,
        run: &'a StreamId,
        owner: &'a str,
        for_us: u64,
    ) -> Answer<'a, Lease> {
        let (run, owner) = (run.clone(), owner.to_owned());
        self.run(move |inner| async move { inner.take_lease(&run, &owner, for_us).await })
    }

    fn renew_lease<'a>(&'a self, run: &'a StreamId, token: u64, for_us: u64) -> Answer<'a, Lease> {
        let held = [(run.clone(), token)];
        self.run(move |inner| async move {
            let renewed = inner.renew_leases(&held, for_us).await?;
            renewed
                .into_iter()
                .next()
                .unwrap_or(Err(StoreError::Closed))
        })
    }

    fn release_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
        let run = run.clone();
        self.run(move |inner| async move { inner.release_lease(&run, token, false).await })
    }

    fn hand_over_lease<'a>(&'a self, run: &'a StreamId, token: u64) -> Answer<'a, ()> {
        let run = run.clone();
        self.run(move |inner| async move { inner.release_lease(&run, token, true).await })
    }

    fn renew_leases<'a>(
        &'a self,
        held: &'a [(StreamId, u64)],
        for_us: u64,
    ) -> Answer<'a, Vec<Result<Lease, StoreError>>> {
        let held = held.to_vec();
        self.run(move |inner| async move { inner.renew_leases(&held, for_us).await })
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Vec<(StreamId, Lease)>> {
        let claim = claim.clone();
        self.run(|inner| async move { inner.claim(&claim).await })
    }

    fn timers_due(&self, now_us: u64, limit: usize) -> Answer<'_, Vec<Timer>> {
        self.run(move |inner| async move { inner.timers_due(now_us, limit).await })
    }

    fn next_timer_us(&self) -> Answer<'_, Option<u64>> {
        self.run(|inner| async move { inner.next_timer_us().await })
    }

    fn send<'a>(&'a self, letter: &'a NewLetter) -> Answer<'a, LetterRef> {
        let letter = letter.clone();
        self.run(|inner| async move { inner.send(&letter).await })
    }

    fn is_taken<'a>(&'a self, letter: &'a LetterRef) -> Answer<'a, bool> {
        let letter = letter.clone();
        self.run(|inner| async move { inner.is_taken(&letter).await })
    }

    fn take_letters(&self) -> Answer<'_, LettersTaken> {
        self.run(|inner| async move { inner.take_letters().await })
    }

    fn position(&self) -> Answer<'_, Position> {
        Box::pin(async move {
            self.inner().check_open()?;
            Ok(self.inner().memory().position)
        })
    }

    fn changed(&self, after: Position) -> Answer<'_, Position> {
        Box::pin(async move {
            let _waiting = Waiting::new(self.inner());
            let inner = self.inner();
            let further = |memory: &mut Memory| match memory.closed {
                true => Err(StoreError::Closed),
                false => Ok((memory.position > after).then_some(memory.position)),
            };
            inner.wait_at(&inner.changed, further).await
        })
    }
}

/// Somebody waits for a change, so that it is worth looking for one.
struct Waiting<'a>(&'a Inner);

impl<'a> Waiting<'a> {
    fn new(inner: &'a Inner) -> Waiting<'a> {
        inner.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
