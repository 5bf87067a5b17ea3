//! Where a store can be: tests that are the same for each place run in all of them.

#![allow(dead_code, unused_macros, clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use dalsegno_pgtest::Server;

use super::TempDir;

/// A place for a store of a test's own.
pub struct Place {
    path: PathBuf,
    dir: TempDir,
    server: Option<Server>,
}

impl Place {
    /// A folder that is not there yet.
    pub fn folder() -> Place {
        let dir = TempDir::new();
        Place {
            path: dir.join("store"),
            dir,
            server: None,
        }
    }

    /// A schema of the tests' server that is not there yet.
    pub fn database() -> Place {
        let server = Server::shared();
        Place {
            path: server.url().into(),
            dir: TempDir::new(),
            server: Some(server),
        }
    }

    /// The same on a server of its own, which can be stopped.
    pub fn server_of_its_own() -> Place {
        let server = Server::start();
        Place {
            path: server.url().into(),
            dir: TempDir::new(),
            server: Some(server),
        }
    }

    /// As `--store` takes it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file of the test's own beside the store.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn is_database(&self) -> bool {
        self.server.is_some()
    }

    /// What statements give in the store's schema.
    pub fn sql(&self, sql: &str) -> String {
        let url = self.path.to_str().unwrap();
        self.server.as_ref().unwrap().sql(url, sql)
    }

    /// All that is there.
    pub fn everything(&self) -> Vec<(PathBuf, Vec<u8>)> {
        if !self.is_database() {
            return super::trouble::everything(&self.path);
        }
        let tables = [
            "stream",
            "event",
            "piece",
            "run",
            "timer",
            "claimable",
            "letter",
        ];
        let rows = tables.map(|table| {
            let all = format!("SELECT t::text FROM {table} t ORDER BY 1");
            (PathBuf::from(table), self.sql(&all).into_bytes())
        });
        rows.into()
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }
}

/// Makes two tests of each function that takes a [`Place`]: in a folder, and in a database.
#[macro_export]
macro_rules! in_both {
    ($($test:ident,)*) => {
        mod in_a_folder {
            $(#[test] fn $test() { super::$test(&super::common::places::Place::folder()) })*
        }
        mod in_a_database {
            $(#[test] fn $test() { super::$test(&super::common::places::Place::database()) })*
        }
    };
}
