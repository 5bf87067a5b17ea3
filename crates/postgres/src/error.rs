//! What can go wrong with a database, in words for the person who has to deal with it.
//!
//! Invariant: a message never has the password, nor anything else of the address but host, port,
//! user and database.

use dalsegno_store::StoreError;
use tokio_postgres::error::SqlState;

/// Why a statement did not come to an end.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The connection is gone or was never there. What was sent last may have happened.
    Gone(String),
    /// The database undid what was asked because of others; the same can be asked again.
    Again,
    /// It will not go better another time.
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        Trouble::Store(error)
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Trouble {
        let Some(db) = error.as_db_error() else {
            if error.is_closed() || is_connection(&error) {
                return Trouble::Gone(words(&error));
            }
            return Trouble::Store(StoreError::Backend(format!(
                "PostgreSQL was not understood: {}: report this",
                words(&error)
            )));
        };
        let code = db.code();
        if is_gone(code) {
            return Trouble::Gone(db.message().to_owned());
        }
        if is_worth_another_try(code) {
            return Trouble::Again;
        }
        Trouble::Store(refused(db))
    }
}

/// Whether a server says with this that it lets go of the connection, or took none.
fn is_gone(code: &SqlState) -> bool {
    // Class 08: connection; 57P: shutting down, crashed, starting up, idle for too long.
    let classes = ["08", "57P"];
    classes.iter().any(|class| code.code().starts_with(class))
        || [
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ]
        .contains(code)
}

/// Whether all was undone only because of others, or because it took longer than somebody allows.
fn is_worth_another_try(code: &SqlState) -> bool {
    [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::QUERY_CANCELED,
        SqlState::LOCK_NOT_AVAILABLE,
    ]
    .contains(code)
}

/// The same of what only some users may do: who may not has a store to read from.
pub(crate) fn or_read_only(error: tokio_postgres::Error) -> Trouble {
    let codes = [
        SqlState::INSUFFICIENT_PRIVILEGE,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    match error.code().is_some_and(|code| codes.contains(code)) {
        true => Trouble::Store(StoreError::ReadOnly),
        false => Trouble::from(error),
    }
}

/// What to do about what the database said no to.
fn advice(code: &SqlState) -> &'static str {
    let no_statement = [
        SqlState::INVALID_SQL_STATEMENT_NAME,
        SqlState::DUPLICATE_PSTATEMENT,
    ];
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        "give the user the right to create a schema, or to use all of this one"
    } else if code.code().starts_with("53") {
        "make room for the database, then go on"
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        "connect to the primary, not to a copy that is for reading"
    } else if no_statement.contains(code) {
        "a pooler in between gives each transaction another connection: connect to the server \
         itself, or set the pooler to whole sessions"
    } else {
        "see the server's log"
    }
}

/// What the database said no to.
fn refused(db: &tokio_postgres::error::DbError) -> StoreError {
    let code = db.code();
    let message = db.message();
    let advice = advice(code);
    StoreError::Backend(format!(
        "PostgreSQL refused ({}): {message}: {advice}",
        code.code()
    ))
}

/// Whether an error of the client is about the connection and not about what was said over it.
fn is_connection(error: &tokio_postgres::Error) -> bool {
    use std::error::Error;
    error
        .source()
        .is_some_and(|source| source.downcast_ref::<std::io::Error>().is_some())
}

/// An error with what caused it.
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    use std::error::Error;
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Why no connection was made, for the person who gave the address.
pub(crate) fn no_connection(error: &tokio_postgres::Error, place: &str) -> StoreError {
    let Some(db) = error.as_db_error() else {
        let why = words(error);
        return StoreError::Backend(match is_connection(error) {
            _ if why.contains("server does not support TLS") => format!(
                "PostgreSQL at {place} cannot encrypt connections, which the address asks for \
                 (sslmode): switch ssl on there, or say sslmode=disable"
            ),
            _ if why.contains("TLS handshake") => format!(
                "the certificate of PostgreSQL at {place} is not accepted ({why}): name the file \
                 that it is signed by, sslrootcert=FILE, and the host that it is for"
            ),
            true => format!(
                "no PostgreSQL answers at {place} ({why}): start it, or check host and port"
            ),
            false if why.contains("password") => {
                format!("PostgreSQL at {place} asks for a password: put it into the address")
            }
            false => format!("PostgreSQL at {place} could not be spoken to: {why}"),
        });
    };
    let message = db.message();
    let code = db.code();
    let advice = if code.code().starts_with("28") {
        "check the user and the password in the address"
    } else if *code == SqlState::UNDEFINED_DATABASE {
        "create that database, or correct its name in the address"
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        "raise max_connections, or open fewer stores"
    } else {
        "see the server's log"
    };
    StoreError::Backend(format!(
        "PostgreSQL at {place} refused the connection: {message}: {advice}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_understood() {
        let gone = [
            "57P01", "57P02", "57P03", "57P05", "08006", "53300", "25P03",
        ];
        for code in gone.map(SqlState::from_code) {
            assert!(is_gone(&code), "{code:?}");
        }
        // 57014 is a statement that took longer than is allowed, 55P03 a lock that did.
        let again = ["40001", "40P01", "57014", "55P03"];
        for code in again.map(SqlState::from_code) {
            assert!(is_worth_another_try(&code) && !is_gone(&code), "{code:?}");
        }
        for code in ["23505", "53100", "25006"].map(SqlState::from_code) {
            assert!(!is_worth_another_try(&code) && !is_gone(&code), "{code:?}");
        }
        for code in ["26000", "42P05"].map(SqlState::from_code) {
            assert!(advice(&code).contains("pooler"), "{code:?}");
        }
    }
}
