//! Opening a memory of a database: from the indexes that another process has kept, beside from the
//! stream. Each opening is that of a new process: with a store, and connections, of its own.

use std::sync::Arc;
use std::time::Instant;

use dalsegno_memory::{Memory, NewDocument, Query, RankingConfig};
use dalsegno_pgtest::Server;
use dalsegno_postgres::PostgresStore;
use dalsegno_store::{Answer, Over, Store, StreamId};
use tokio::runtime::Runtime;

use super::texts::Chance;
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::alternate;
use crate::row::{Goal, Row};

const DOCUMENTS: usize = 100_000;
const AT_ONCE: usize = 1000;
/// What is behind the indexes that are kept, as a process finds it.
const TAIL: usize = 100;
/// From the stream it takes many seconds.
const ROUNDS: usize = 3;
const NAME: &str = "bench";

/// A store in which nothing is kept.
#[derive(Debug)]
struct WithoutHelpers(PostgresStore);

impl Over for WithoutHelpers {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn begin_helpers<'a>(&'a self, _stream: &'a StreamId) -> Answer<'a, Option<u64>> {
        Box::pin(async { Ok(None) })
    }

    fn helper<'a>(&'a self, _stream: &'a StreamId, _name: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        Box::pin(async { Ok(None) })
    }
}

/// All rows.
pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let runtime = &super::runtime()?;
    let server = Server::start();
    let documents = setting.memory.documents.unwrap_or(DOCUMENTS);
    let url = server.url();
    let keeping = fill(runtime, &url, documents)?;
    let open = |finds: bool, searches: bool| {
        let begun = Instant::now();
        let store = PostgresStore::open(&url)?;
        let store: Arc<dyn Store> = match finds {
            true => Arc::new(store),
            false => Arc::new(WithoutHelpers(store)),
        };
        runtime.block_on(async {
            let memory = Memory::open(store, NAME).await?;
            if searches {
                let query = Query::words("w1");
                memory.search(&query, &RankingConfig::default()).await?;
            }
            let taken = begun.elapsed();
            Ok::<_, Error>(taken.as_secs_f64() * 1e3)
        })
    };
    let rounds = setting.rounds.min(ROUNDS);
    for (what, searches) in [("opened", false), ("opened and first searched", true)] {
        emit(Row {
            name: format!("memory of {documents} documents {what}, indexes kept"),
            unit: "ms",
            anchor_name: "from the stream",
            goal: Goal::RatioAtMost(0.5),
            rounds: alternate(rounds, || open(true, searches), || open(false, searches))?,
        });
    }
    emit(Row {
        name: format!("indexes of {documents} documents kept"),
        unit: "ms",
        anchor_name: "from the stream",
        goal: Goal::Shown,
        rounds: alternate(1, || Ok(keeping), || open(false, false))?,
    });
    Ok(())
}

/// Fills a memory, and keeps its indexes before the last few documents; the milliseconds that it took to
/// keep them.
fn fill(runtime: &Runtime, url: &str, documents: usize) -> Result<f64, Error> {
    let mut chance = Chance::new(1);
    runtime.block_on(async {
        let store = PostgresStore::open(url)?;
        let memory = Memory::open(Arc::new(store), NAME).await?;
        let mut add = async |count: usize| {
            let mut new = Vec::with_capacity(count);
            for _ in 0..count {
                let document = NewDocument::document(chance.text());
                new.push(document.vector(chance.vector()?));
            }
            memory.add_many(new).await?;
            Ok::<_, Error>(())
        };
        let mut left = documents.saturating_sub(TAIL);
        while left > 0 {
            let count = left.min(AT_ONCE);
            add(count).await?;
            left -= count;
        }
        let begun = Instant::now();
        memory.keep().await?;
        let taken = begun.elapsed();
        add(TAIL.min(documents)).await?;
        Ok(taken.as_secs_f64() * 1e3)
    })
}
