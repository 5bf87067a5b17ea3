//! Encrypted connections, and what is checked of the server's certificate.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use dalsegno_contract::world::noted;
use dalsegno_pgtest::Server;
use dalsegno_postgres::PostgresStore;

/// Works over an address; how many of its connections are encrypted. `plain` is the same for psql.
fn encrypted(server: &Server, plain: &str, url: &str) -> u64 {
    let store = PostgresStore::open(url).unwrap();
    let order = create(&store, "order");
    let token = take(&store, &order, "worker", SECOND_US);
    let long = dalsegno_store::NewPayload::json("x".repeat(200_000));
    append_under(&store, &order, token, noted(1).with_output(long)).unwrap();
    assert_eq!(all(&store, &order).len(), 3);
    store.wait_until_it_listens();
    let sql = "SELECT count(*) FROM pg_stat_ssl NATURAL JOIN pg_stat_activity
               WHERE ssl AND application_name = 'dalsegno'";
    let count = server.number(plain, sql);
    store.close().unwrap();
    count
}

fn refused(url: &str, words: &[&str]) {
    let error = PostgresStore::open(url).map(drop).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn what_the_address_asks_for_is_done_and_checked() {
    let server = Server::start();
    let with = |host: &str, more: &str| {
        let url = server.url().replace("127.0.0.1", host);
        let encrypted = format!("{url}&{more}");
        (url, encrypted)
    };
    let open = |host: &str, more: &str| {
        let (plain, url) = with(host, more);
        encrypted(&server, &plain, &url)
    };
    let (_, url) = with("127.0.0.1", "sslmode=require");
    refused(&url, &["cannot encrypt", "sslmode=disable"]);

    let root = server.encrypt("localhost");
    let root = format!("sslrootcert={}", root.display());
    // Whoever it is.
    assert!(open("127.0.0.1", "sslmode=require") >= 3);
    assert!(open("127.0.0.1", "sslmode=prefer") >= 3);
    assert_eq!(open("127.0.0.1", "sslmode=disable"), 0);
    // Whoever the root has signed.
    assert!(open("127.0.0.1", &format!("sslmode=verify-ca&{root}")) >= 3);
    // And it is the host.
    assert!(open("localhost", &format!("sslmode=verify-full&{root}")) >= 3);
    let (_, url) = with("127.0.0.1", &format!("sslmode=verify-full&{root}"));
    refused(&url, &["certificate", "not accepted", "host"]);
    // The system trusts others, or none.
    for mode in ["verify-ca", "verify-full"] {
        let (_, url) = with("localhost", &format!("sslmode={mode}"));
        refused(&url, &["certificate", "sslrootcert"]);
    }
}
