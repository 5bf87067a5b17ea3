//! What a database says about itself, for the person who has to keep it well.

use std::time::{Duration, Instant};

use dalsegno_store::StoreError;

use crate::inner::{Inner, trying};

const SERVER: &str = "SELECT current_setting('server_version'),
     current_setting('fsync'), current_setting('synchronous_commit'),
     (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, current_user::text,
     current_database()::text, current_setting('max_connections')::bigint";
const WORKERS: &str = "SELECT count(DISTINCT c.holder), count(*) FROM claimable c
     WHERE c.token IS NOT NULL
         AND c.ready_us > COALESCE($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)";
const LETTERS: &str =
    "SELECT count(*) FILTER (WHERE bad IS NULL), count(*) FILTER (WHERE bad IS NOT NULL)
     FROM letter";
const BYTES: &str = "SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::bigint
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = $1 AND c.relkind = 'r'";
/// What a worker has to write, and this user may not; and whether nobody may.
const MAY_NOT: &str = "SELECT current_setting('transaction_read_only') = 'on',
         (SELECT string_agg(need.what || ' on ' || need.name, ', ')
          FROM (SELECT w.what, t.name FROM unnest(ARRAY['INSERT', 'UPDATE', 'DELETE']) AS w (what)
                CROSS JOIN unnest(ARRAY['stream', 'run', 'timer', 'claimable', 'letter']) AS t (name)
                UNION ALL SELECT 'INSERT', 'event' UNION ALL SELECT 'INSERT', 'piece') need
          WHERE NOT has_table_privilege(need.name, need.what)),
         current_user::text";
/// A row that is written as it is, so that a commit is waited for.
const TOUCH: &str = "UPDATE meta SET version = version WHERE one = 1";
/// Commits that are measured; their median counts.
const COMMITS: usize = 9;

/// What is known of a database and of the store in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AboutDatabase {
    /// As in `17.2`.
    pub server: String,
    /// Host and port.
    pub place: String,
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
    /// The schema that the store is in.
    pub schema: String,
    /// Whether the server syncs what it commits, and before it says so.
    pub keeps: bool,
    /// Its clock, in microseconds since 1970.
    pub clock_us: u64,
    /// How many connections it takes.
    pub max_connections: u64,
    /// The median time of a commit, and the longest; `None` if this user may not write.
    pub commit: Option<(Duration, Duration)>,
    /// Processes that hold runs now.
    pub workers: u64,
    /// Runs that they hold.
    pub held: u64,
    /// Letters that wait.
    pub letters: u64,
    /// Letters that could not be read.
    pub bad_letters: u64,
    /// What the tables take on its disk, with their indexes.
    pub bytes: u64,
}

impl Inner {
    /// As [`crate::PostgresStore::about`].
    pub async fn about(&self) -> Result<AboutDatabase, StoreError> {
        let address = &self.pool.address;
        let server = self.rows(SERVER, &[]).await?;
        let workers = self.rows(WORKERS, &[&self.options.lease_now_us()]).await?;
        let letters = self.rows(LETTERS, &[]).await?;
        let bytes = self.rows(BYTES, &[&address.schema]).await?;
        let (Some(server), Some(workers), Some(letters), Some(bytes)) = (
            server.first(),
            workers.first(),
            letters.first(),
            bytes.first(),
        ) else {
            return Err(StoreError::Backend(
                "PostgreSQL gave no answer about itself: see the server's log".into(),
            ));
        };
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        let is_on = |setting: &str| setting != "off";
        Ok(AboutDatabase {
            server: server.get(0),
            place: address.place.clone(),
            user: server.get(4),
            database: server.get(5),
            schema: address.schema.clone(),
            keeps: is_on(server.get(1)) && is_on(server.get(2)),
            clock_us: count(server.get(3)),
            max_connections: count(server.get(6)),
            commit: self.commit_time().await?,
            workers: count(workers.get(0)),
            held: count(workers.get(1)),
            letters: count(letters.get(0)),
            bad_letters: count(letters.get(1)),
            bytes: count(bytes.get(0)),
        })
    }

    /// As [`crate::PostgresStore::check_writable`].
    pub async fn check_writable(&self) -> Result<(), StoreError> {
        let rows = self.rows(MAY_NOT, &[]).await?;
        let Some(row) = rows.first() else {
            return Ok(());
        };
        let (read_only, missing): (bool, Option<String>) = (row.get(0), row.get(1));
        let (place, user): (_, String) = (&self.pool.address.place, row.get(2));
        if read_only {
            return Err(StoreError::Backend(format!(
                "the store at {place} can only be read: connect to the primary, not to a copy that is \
                 for reading"
            )));
        }
        match missing {
            Some(missing) => Err(StoreError::Backend(format!(
                "user {user} cannot write to the store at {place} ({missing}): give the user the \
                 rights on all tables of its schema"
            ))),
            None => Ok(()),
        }
    }

    async fn commit_time(&self) -> Result<Option<(Duration, Duration)>, StoreError> {
        let mut times = Vec::new();
        // The first one prepares the statement, and does not count.
        for round in 0..=COMMITS {
            let began = Instant::now();
            let touched = trying!(self, {
                let mut lent = self.pool.lend().await?;
                let touched = lent.conn.execute(TOUCH, &[]).await;
                self.pool.give_back(lent);
                touched
            });
            if touched.is_err() {
                return Ok(None);
            }
            if round > 0 {
                times.push(began.elapsed());
            }
        }
        times.sort_unstable();
        let longest = times.last().copied();
        Ok(times.get(times.len() / 2).copied().zip(longest))
    }
}
