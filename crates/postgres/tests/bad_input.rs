//! What cannot be a store is refused in one sentence that says what to do.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use dalsegno_pgtest::Server;
use dalsegno_postgres::PostgresStore;

/// The one sentence, which must have all of these words.
fn refused(url: &str, words: &[&str]) {
    let error = match PostgresStore::open(url) {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error.to_string(),
    };
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
    assert!(!error.contains('\n'), "{error}");
    assert!(!error.contains("secret"), "the password is in: {error}");
}

#[test]
fn wrong_addresses() {
    for url in [
        "",
        "mysql://localhost/x",
        "postgres://",
        "postgres://u:secret@host:port/db",
        "postgres://localhost/db?schema=x;drop",
        "postgres://localhost/db?schema=",
        "postgres://localhost/db?unknown=1",
    ] {
        refused(
            url,
            &["address", "postgres://user:password@host:port/database"],
        );
    }
    refused("postgres://localhost/db?sslmode=perhaps", &["verify-full"]);
    let no_file = "postgres://localhost/db?sslmode=verify-full&sslrootcert=/no/such/file";
    refused(no_file, &["/no/such/file", "sslrootcert"]);
}

#[test]
fn nobody_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("postgres://u:secret@127.0.0.1:{port}/db");
    refused(
        &url,
        &[
            "no PostgreSQL answers",
            &format!("127.0.0.1:{port}"),
            "start it",
        ],
    );
}

#[test]
fn a_wrong_password_and_no_password() {
    let server = Server::start();
    let url = server.url();
    server.sql(&url, "CREATE ROLE needs_password LOGIN PASSWORD 'right'");
    let port = server.port();
    let with = |login: &str| format!("postgres://{login}@127.0.0.1:{port}/postgres");
    refused(
        &with("needs_password:secret"),
        &["password", "check the user"],
    );
    refused(&with("needs_password"), &["password"]);
    refused(
        &with("nobody_of_that_name"),
        &["nobody_of_that_name", "check the user"],
    );
    let missing = format!("postgres://postgres@127.0.0.1:{port}/missing");
    refused(&missing, &["missing", "create that database"]);
}

#[test]
fn missing_rights() {
    let server = Server::start();
    let url = server.url();
    server.sql(&url, "CREATE ROLE poor LOGIN");
    let port = server.port();
    let poor = format!("postgres://poor@127.0.0.1:{port}/postgres");
    refused(&poor, &["permission denied", "give the user the right"]);
    // With the right to create one, and nothing else, it works: no superuser is needed.
    server.sql(&url, "GRANT CREATE ON DATABASE postgres TO poor");
    let store = PostgresStore::open(&poor).unwrap();
    create(&store, "order");
}

#[test]
fn a_schema_of_a_newer_version() {
    let server = Server::shared();
    let url = server.url();
    drop(open(&url));
    server.sql(&url, "UPDATE meta SET version = 99");
    refused(&url, &["version 99", "use a newer"]);
}

#[test]
fn a_server_that_may_lose_what_it_acknowledged() {
    let server = Server::start();
    let url = server.url();
    server.sql(&url, "ALTER ROLE postgres SET synchronous_commit = off");
    refused(&url, &["synchronous_commit = off", "set it to on"]);
    server.sql(&url, "ALTER ROLE postgres SET synchronous_commit = local");
    drop(open(&url));
}

#[test]
fn many_that_open_a_new_store_at_once_make_it_once() {
    let server = Server::shared();
    let url = server.url();
    let stores: Vec<PostgresStore> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| PostgresStore::open(&url).unwrap()))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for (n, store) in stores.iter().enumerate() {
        create(store, &format!("r{n}"));
    }
    assert_eq!(server.number(&url, "SELECT version FROM meta"), 2);
    assert_eq!(server.number(&url, "SELECT count(*) FROM run"), 12);
}
