//! How a store in PostgreSQL is opened.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dalsegno_store::{Limits, StoreError};
use tokio_postgres::config::Host;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};

use crate::PostgresStore;
use crate::security::{self, Connector, Security};

/// The schema that a store is in unless its address says otherwise.
const DEFAULT_SCHEMA: &str = "dalsegno";
/// The longest name of a schema: a channel is named after it.
const SCHEMA_LIMIT_BYTES: usize = 50;
/// So long what was sent may be unconfirmed, and a connection silent before it is asked whether it is
/// there. A machine that vanishes says nothing, and by itself the system waits a quarter of an hour for
/// it, or for ever. A server that only takes long answers all the same.
const UNCONFIRMED: Duration = Duration::from_secs(15);
const SILENT: Duration = Duration::from_secs(10);
/// Between two such questions, and how many.
const ASKED_EVERY: Duration = Duration::from_secs(2);
const ASKED: u32 = 3;
/// How to write an address.
const FORM: &str = "write it as postgres://user:password@host:port/database";

/// How to open a [`PostgresStore`].
#[derive(Clone)]
pub struct PostgresOptions {
    pub(crate) limits: Limits,
    pub(crate) connections: usize,
    pub(crate) flush_after: Duration,
    pub(crate) queue_bytes: usize,
    pub(crate) poll_every: Duration,
    pub(crate) patience: Duration,
    pub(crate) notifications: bool,
    pub(crate) existing_only: bool,
    clock: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
    machine_clock: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("limits", &self.limits)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        PostgresOptions::new()
    }
}

impl PostgresOptions {
    /// The defaults.
    pub fn new() -> PostgresOptions {
        PostgresOptions {
            limits: Limits::default(),
            connections: 4,
            flush_after: Duration::from_millis(5),
            queue_bytes: 8 << 20,
            poll_every: Duration::from_millis(300),
            patience: Duration::from_secs(30),
            notifications: true,
            existing_only: false,
            clock: None,
            machine_clock: None,
        }
    }

    /// How large payloads, events and appends may be.
    pub fn limits(mut self, limits: Limits) -> PostgresOptions {
        self.limits = limits;
        self
    }

    /// At most so many connections for reading and for appends to runs that are not held, beside one
    /// for the runs that are, and one that listens.
    pub fn connections(mut self, connections: usize) -> PostgresOptions {
        self.connections = connections.max(1);
        self
    }

    /// What nobody waits for is sent after so long.
    pub fn flush_after(mut self, time: Duration) -> PostgresOptions {
        self.flush_after = time;
        self
    }

    /// So often it is looked whether others have changed something, if somebody waits for that:
    /// notifications may get lost with a connection. Up to twice as long, by chance.
    pub fn poll_every(mut self, time: Duration) -> PostgresOptions {
        self.poll_every = time;
        self
    }

    /// Whether others are told of changes, and listened to, with `NOTIFY` and `LISTEN`. A server or a
    /// pooler that cannot do that is found out without asking, and then changes are seen by looking
    /// ([`PostgresOptions::poll_every`]); saying so saves the attempts.
    pub fn notifications(mut self, wanted: bool) -> PostgresOptions {
        self.notifications = wanted;
        self
    }

    /// So long it is tried again when the database cannot be reached, before what was asked fails.
    /// What was appended to a run that is held is tried as long as the store is open.
    pub fn patience(mut self, time: Duration) -> PostgresOptions {
        self.patience = time;
        self
    }

    /// Makes no store where there is none: opening is an error then.
    pub fn existing_only(mut self) -> PostgresOptions {
        self.existing_only = true;
        self
    }

    /// The clock to use instead of the machine's and, for leases, the database's: microseconds since
    /// 1970. For tests.
    pub fn clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> PostgresOptions {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// The same instead of the machine's only: leases go by the database's. For tests of clocks that
    /// are wrong.
    pub fn machine_clock(
        mut self,
        clock: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> PostgresOptions {
        self.machine_clock = Some(Arc::new(clock));
        self
    }

    /// Opens the store at an address, and makes it if there is none.
    ///
    /// # Errors
    /// The address is none, nobody answers there, the user is refused or may not do what is needed,
    /// or the server is too old, keeps nothing, or has a store of a newer version.
    pub fn open(&self, url: &str) -> Result<PostgresStore, StoreError> {
        PostgresStore::open_with(&Address::parse(url)?, self)
    }

    /// The time of events.
    pub(crate) fn now_us(&self) -> u64 {
        match self.clock.as_ref().or(self.machine_clock.as_ref()) {
            Some(clock) => clock(),
            // A clock before 1970 is no reason to stop.
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_micros() as u64),
        }
    }

    /// The time of leases, if it is not the database's.
    pub(crate) fn lease_now_us(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock() as i64)
    }
}

/// What carries what a client says.
pub(crate) type Link = Connection<Socket, <Connector as MakeTlsConnect<Socket>>::Stream>;

/// Where a store is.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    config: Config,
    connector: Connector,
    pub schema: String,
    /// Host and port, for people.
    pub place: String,
}

impl Address {
    /// Connects.
    pub async fn connect(&self) -> Result<(Client, Link), tokio_postgres::Error> {
        // Without encryption it is one that is copied.
        #[allow(clippy::clone_on_copy)]
        let connector = self.connector.clone();
        self.config.connect(connector).await
    }

    pub fn parse(url: &str) -> Result<Address, StoreError> {
        let wrong = |why: &str| {
            StoreError::Backend(format!(
                "this is no address of a PostgreSQL database ({why}): {FORM}"
            ))
        };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(wrong("it does not begin with postgres://"));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut schema = DEFAULT_SCHEMA;
        let mut rest = Vec::new();
        let mut security = Security::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.strip_prefix("schema=") {
                Some(name) => schema = name,
                None if security.take(part).map_err(|why| wrong(&why))? => {}
                None => rest.push(part),
            }
        }
        if !is_schema(schema) {
            return Err(wrong(
                "its schema must be of lower-case letters, digits and _, and not be longer than 50",
            ));
        }
        let plain = match rest.is_empty() {
            true => base.to_owned(),
            false => format!("{base}?{}", rest.join("&")),
        };
        let mut config: Config = plain
            .parse()
            .map_err(|e: tokio_postgres::Error| wrong(&crate::error::words(&e)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(wrong("it names no host"));
        }
        config.ssl_mode(security.ssl_mode());
        let connector = security::connector(&security)?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        notice_what_vanishes(&mut config);
        if config.get_application_name().is_none() {
            config.application_name("dalsegno");
        }
        let host = match config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "its address".to_owned(),
        };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        Ok(Address {
            config,
            connector,
            schema: schema.to_owned(),
            place: format!("{host}:{port}"),
        })
    }
}

/// What the address does not say about connections whose other end is gone.
fn notice_what_vanishes(config: &mut Config) {
    let unsaid = Config::new();
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNCONFIRMED);
    }
    if config.get_keepalives_idle() == unsaid.get_keepalives_idle() {
        config.keepalives_idle(SILENT);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(ASKED_EVERY);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(ASKED);
    }
}

fn is_schema(name: &str) -> bool {
    let first = name.bytes().next();
    name.len() <= SCHEMA_LIMIT_BYTES
        && first.is_some_and(|b| b.is_ascii_lowercase() || b == b'_')
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_machine_that_vanishes_is_noticed_unless_the_address_says_otherwise() {
        let config = Address::parse("postgres://u@h/d").unwrap().config;
        assert_eq!(config.get_tcp_user_timeout(), Some(&UNCONFIRMED));
        assert_eq!(config.get_keepalives_idle(), SILENT);
        assert_eq!(config.get_keepalives_interval(), Some(ASKED_EVERY));
        assert_eq!(config.get_keepalives_retries(), Some(ASKED));
        let said =
            "tcp_user_timeout=70&keepalives_idle=80&keepalives_interval=9&keepalives_retries=7";
        let config = Address::parse(&format!("postgres://u@h/d?{said}"));
        let config = config.unwrap().config;
        let seconds = Duration::from_secs;
        assert_eq!(config.get_tcp_user_timeout(), Some(&seconds(70)));
        assert_eq!(config.get_keepalives_idle(), seconds(80));
        assert_eq!(config.get_keepalives_interval(), Some(seconds(9)));
        assert_eq!(config.get_keepalives_retries(), Some(7));
    }
}
