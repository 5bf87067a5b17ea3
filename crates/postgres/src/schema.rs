//! The tables: made and brought up to date when a store is opened.
//!
//! Invariants: each migration happens once and whole, however many processes open a store at the
//! same time: they wait for each other at the only row of `meta`. A schema of a newer version is left
//! alone. What a server would lose in a crash is not accepted.

use dalsegno_store::StoreError;
use tokio_postgres::error::SqlState;

use crate::error::{Trouble, no_connection};
use crate::options::Address;
use crate::pool::Conn;

/// The migrations in order; the version of a schema is how many it has had.
const MIGRATIONS: [&str; 2] = [
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_helpers.sql"),
];
/// The oldest server that is spoken to, as `server_version_num` has it.
const OLDEST_SERVER: i64 = 130_000;
/// Others that make the same things at the same time are waited for so often.
const TRIES: usize = 20;

/// Checks the server and makes the schema what it has to be.
pub(crate) async fn prepare(address: &Address, existing_only: bool) -> Result<Conn, StoreError> {
    let conn = Conn::open(address).await;
    let mut conn = conn.map_err(|e| no_connection(&e, &address.place))?;
    check_server(&mut conn).await.map_err(told)?;
    if existing_only
        && version(&mut conn, &address.schema)
            .await
            .map_err(told)?
            .is_none()
    {
        let (schema, place) = (&address.schema, &address.place);
        return Err(StoreError::NotAStore {
            dir: place.into(),
            why: format!("the database has no store in the schema {schema}"),
        });
    }
    for _ in 1..TRIES {
        match migrate(&mut conn, address).await {
            // Somebody else makes the same at this moment, and "if not exists" does not see it yet.
            Err(Trouble::Again) => conn.say("ROLLBACK").await.map_err(told)?,
            other => return other.map(|()| conn).map_err(told),
        }
    }
    let place = &address.place;
    Err(StoreError::Backend(format!(
        "the tables at {place} are being made by too many at once: try again"
    )))
}

fn told(trouble: Trouble) -> StoreError {
    match trouble {
        Trouble::Store(error) => error,
        Trouble::Gone(why) => StoreError::Backend(format!(
            "the connection to PostgreSQL was lost: {why}: try again"
        )),
        Trouble::Again => StoreError::Backend("PostgreSQL was too busy: try again".into()),
    }
}

async fn check_server(conn: &mut Conn) -> Result<(), Trouble> {
    let rows = conn
        .query(
            "SELECT current_setting('server_version_num'), current_setting('synchronous_commit', true),
                 current_setting('fsync', true)",
            &[],
        )
        .await?;
    // A relative of PostgreSQL may not know one of them.
    let setting = |at: usize| {
        let value = rows.first().and_then(|row| row.get::<_, Option<&str>>(at));
        value.unwrap_or_default()
    };
    check_version(setting(0))?;
    for (at, name) in [(1, "synchronous_commit"), (2, "fsync")] {
        if setting(at) == "off" {
            return Err(Trouble::Store(StoreError::Backend(format!(
                "PostgreSQL has {name} = off, so that it could lose what it has acknowledged: \
                 set it to on for this user or server"
            ))));
        }
    }
    Ok(())
}

fn check_version(number: &str) -> Result<(), StoreError> {
    let found: i64 = number.parse().unwrap_or(0);
    if found >= OLDEST_SERVER {
        return Ok(());
    }
    Err(StoreError::Backend(format!(
        "the server is PostgreSQL {}, older than {}: use a newer server",
        found / 10_000,
        OLDEST_SERVER / 10_000
    )))
}

/// An error that two who create the same thing at once can get.
fn raced(trouble: tokio_postgres::Error) -> Trouble {
    let races = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::DUPLICATE_TABLE,
        SqlState::DUPLICATE_SCHEMA,
        SqlState::DUPLICATE_OBJECT,
    ];
    match trouble.code() {
        Some(code) if races.contains(code) => Trouble::Again,
        _ => Trouble::from(trouble),
    }
}

async fn migrate(conn: &mut Conn, address: &Address) -> Result<(), Trouble> {
    let schema = &address.schema;
    if version(conn, schema).await? == Some(MIGRATIONS.len() as i32) {
        return Ok(());
    }
    let exists = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
    if conn.query(exists, &[schema]).await?.is_empty() {
        let create = format!("CREATE SCHEMA IF NOT EXISTS {schema}");
        conn.client.batch_execute(&create).await.map_err(raced)?;
    }
    let meta =
        "CREATE TABLE IF NOT EXISTS meta (one smallint PRIMARY KEY, version integer NOT NULL);
                INSERT INTO meta (one, version) VALUES (1, 0) ON CONFLICT (one) DO NOTHING;
                BEGIN";
    conn.client.batch_execute(meta).await.map_err(raced)?;
    let locked = "SELECT version FROM meta WHERE one = 1 FOR UPDATE";
    let rows = conn.query(locked, &[]).await?;
    let had = rows.first().map_or(0, |row| row.get::<_, i32>(0));
    let had = usize::try_from(had).unwrap_or(0);
    if had > MIGRATIONS.len() {
        conn.say("ROLLBACK").await?;
        return Err(newer(schema, had).into());
    }
    for migration in &MIGRATIONS[had..] {
        conn.client.batch_execute(migration).await.map_err(raced)?;
    }
    let now = MIGRATIONS.len() as i32;
    conn.execute("UPDATE meta SET version = $1 WHERE one = 1", &[&now])
        .await?;
    conn.say("COMMIT").await
}

/// The version of the schema, if there is one that is not newer than this program.
async fn version(conn: &mut Conn, schema: &str) -> Result<Option<i32>, Trouble> {
    let there = "SELECT to_regclass($1) IS NOT NULL";
    let name = format!("{schema}.meta");
    let rows = conn.query(there, &[&name]).await?;
    if !rows.first().is_some_and(|row| row.get::<_, bool>(0)) {
        return Ok(None);
    }
    let rows = conn.query("SELECT version FROM meta", &[]).await?;
    let found = rows.first().map(|row| row.get::<_, i32>(0));
    match found {
        Some(found) if found > MIGRATIONS.len() as i32 => Err(newer(schema, found as usize).into()),
        found => Ok(found),
    }
}

fn newer(schema: &str, found: usize) -> StoreError {
    StoreError::Backend(format!(
        "the schema {schema} has version {found}, this program knows up to {}: use a newer one",
        MIGRATIONS.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_refused_in_one_sentence() {
        assert!(check_version("130004").is_ok());
        assert!(check_version("170000").is_ok());
        let old = check_version("120011").map_err(|e| e.to_string());
        assert_eq!(
            old,
            Err("the server is PostgreSQL 12, older than 13: use a newer server".into())
        );
    }
}
