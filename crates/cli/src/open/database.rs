//! Stores in PostgreSQL: how they are opened, and what is said if they cannot be.

use std::time::Duration;

use dalsegno_postgres::{PostgresOptions, PostgresStore};
use dalsegno_store::StoreError;

use crate::exit::{Error, Exit, Result};
use crate::output::text::shown;

/// A store in a database.
pub type Database = PostgresStore;

/// A command is not worth waiting longer for a database that has gone away.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens the store at an address.
///
/// # Errors
/// The address is none, nobody answers there, the user is refused or may not do what is needed, or
/// there is no store and none is to be made.
pub fn open(address: &str, create: bool) -> Result<Database> {
    let options = PostgresOptions::new().patience(PATIENCE);
    let options = match create {
        true => options,
        false => options.existing_only(),
    };
    options.open(address).map_err(not_opened)
}

/// The same for a process that stays: it waits for a database that has gone away. It is made if there is
/// none.
///
/// # Errors
/// As [`open`].
pub fn open_to_stay(address: &str) -> Result<Database> {
    PostgresOptions::new().open(address).map_err(not_opened)
}

fn not_opened(error: StoreError) -> Error {
    match error {
        StoreError::NotAStore { dir, why } => {
            let place = shown(&dir.display().to_string());
            Error::failed(format!("no store at {place}: {}", shown(&why))).hint(
                "name its schema with ?schema=NAME; a program makes one when it first opens it, \
                 and so does `dalsegno copy`",
            )
        }
        StoreError::Backend(ref words) if words.starts_with("this is no address") => Error {
            exit: Exit::Usage,
            ..error.into()
        },
        other => other.into(),
    }
}
