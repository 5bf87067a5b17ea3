//! Connections: a few, each made when it is needed and again when it is lost.
//!
//! Invariant: a connection comes back only when nothing is open on it. Whoever meets an error drops
//! it, and the server undoes what was not committed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use crate::error::Trouble;
use crate::options::Address;

/// Who finds no connection waits so long for one to come back before another is made: that takes longer than most
/// statements.
const A_MOMENT: Duration = Duration::from_millis(2);

/// How the server is to go about our statements.
const SETTINGS: [&str; 7] = [
    // Every statement has an index, in the order that it needs. A plan that was made while the
    // tables were small, or while nothing was known of them, must not read them whole, nor
    // gather all that fits to sort it. Sorting itself is allowed: of some rows that are asked
    // for by number, it is the better way.
    "SET enable_seqscan TO off",
    "SET enable_bitmapscan TO off",
    "SET enable_mergejoin TO off",
    "SET max_parallel_workers_per_gather TO 0",
    // Making a plan takes longer than most of these statements, and there is only one good one
    // for each, whatever its parameters are. Who chose otherwise in the address is heard.
    "SELECT set_config('plan_cache_mode', 'force_generic_plan', false)
     WHERE current_setting('plan_cache_mode') = 'auto'",
    // Compiling a plan takes far longer than any of these statements.
    "SET jit TO off",
    // A client that vanishes without a word must not hold its locks until the server's
    // network notices. No transaction of ours waits for anything but the database.
    "SET idle_in_transaction_session_timeout TO 30000",
];

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub client: Client,
    statements: HashMap<&'static str, Statement>,
}

impl Conn {
    /// Connects, and goes into the store's schema.
    pub async fn open(address: &Address) -> Result<Conn, tokio_postgres::Error> {
        let (client, connection) = address.connect().await?;
        // Ends with the client, or with the connection: then the client says so.
        tokio::spawn(async move { drop(connection.await) });
        let conn = Conn {
            client,
            statements: HashMap::new(),
        };
        let path = format!(
            "SET search_path TO {}; SET default_transaction_isolation TO 'read committed'",
            address.schema
        );
        // In one go; and one by one if the server, a relative of PostgreSQL, does not know all of them: then it
        // needs none of those.
        let all = format!("{path}; {}", SETTINGS.join("; "));
        match conn.client.batch_execute(&all).await {
            Err(e) if e.as_db_error().is_some() => {}
            told => return told.map(|()| conn),
        }
        conn.client.batch_execute(&path).await?;
        for setting in SETTINGS {
            match conn.client.batch_execute(setting).await {
                Err(e) if e.as_db_error().is_none() => return Err(e),
                _ => {}
            }
        }
        Ok(conn)
    }

    /// A statement that has been prepared already.
    pub fn known(&self, sql: &'static str) -> Option<&Statement> {
        self.statements.get(sql)
    }

    /// A statement, prepared once.
    pub async fn statement(
        &mut self,
        sql: &'static str,
    ) -> Result<Statement, tokio_postgres::Error> {
        if let Some(known) = self.statements.get(sql) {
            return Ok(known.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    /// The rows of a statement, which is prepared once.
    pub async fn query(
        &mut self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Trouble> {
        let statement = self.statement(sql).await?;
        Ok(self.client.query(&statement, params).await?)
    }

    /// How many rows a statement changed.
    pub async fn execute(
        &mut self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Trouble> {
        let statement = self.statement(sql).await?;
        Ok(self.client.execute(&statement, params).await?)
    }

    /// A statement without rows or parameters, as `BEGIN`.
    pub async fn say(&self, sql: &str) -> Result<(), Trouble> {
        Ok(self.client.batch_execute(sql).await?)
    }
}

/// A few connections to the same store.
#[derive(Debug)]
pub(crate) struct Pool {
    pub address: Address,
    idle: Mutex<Vec<Conn>>,
    /// One has come back.
    back: Notify,
    connections: usize,
    permits: Arc<Semaphore>,
}

/// A connection in use.
#[derive(Debug)]
pub(crate) struct Lent {
    pub conn: Conn,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// At most so many connections, of which there is one already.
    pub fn new(address: Address, connections: usize, first: Conn) -> Pool {
        Pool {
            address,
            idle: Mutex::new(vec![first]),
            back: Notify::new(),
            connections,
            permits: Arc::new(Semaphore::new(connections)),
        }
    }

    /// A connection, when one is free.
    pub async fn lend(&self) -> Result<Lent, Trouble> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| Trouble::Store(dalsegno_store::StoreError::Closed))?;
        let mut idle = self.take_idle();
        if idle.is_none() && self.permits.available_permits() + 1 < self.connections {
            // Others have some.
            let waits = tokio::time::timeout(A_MOMENT, self.until_one_is_back()).await;
            idle = waits.ok();
        }
        if let Some(conn) = idle {
            return Ok(Lent {
                conn,
                _permit: permit,
            });
        }
        // That there is no connection says nothing about what was asked.
        let conn = Conn::open(&self.address).await;
        let conn = conn.map_err(|e| match Trouble::from(e) {
            Trouble::Again => Trouble::Gone("the connection was refused for now".into()),
            other => other,
        })?;
        Ok(Lent {
            conn,
            _permit: permit,
        })
    }

    /// Gives a connection back on which nothing is open.
    pub fn give_back(&self, lent: Lent) {
        let Lent { conn, _permit } = lent;
        self.idle().push(conn);
        self.back.notify_one();
    }

    fn take_idle(&self) -> Option<Conn> {
        let mut idle = self.idle();
        idle.retain(|conn| !conn.client.is_closed());
        idle.pop()
    }

    async fn until_one_is_back(&self) -> Conn {
        loop {
            self.back.notified().await;
            if let Some(conn) = self.take_idle() {
                return conn;
            }
        }
    }

    /// Lets all connections go.
    pub fn close(&self) {
        self.permits.close();
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Conn>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
