//! How a command opens the store, in a folder or in a database.
//!
//! | to | a folder | a database |
//! |---|---|---|
//! | look ([`reader`]) | beside whoever owns it, without a lock | as any other |
//! | say something to its runs ([`remote`]) | by its mailbox | by its mailbox |
//! | change it ([`writer`]) | as its owner | beside the workers |
//! | use what only folders have ([`folder_reader`], [`folder_owner`]) | | is refused: used wrongly |
//! | know who owns it ([`owner_now`]) | | nobody does |
//!
//! Invariant: none of these makes a store where there is none, unless that is asked for, and looking
//! changes nothing.

use std::path::Path;
use std::sync::Arc;

use dalsegno::Remote;
use dalsegno_store::{LocalStore, Store};

use crate::address::Place;
use crate::args::Global;
use crate::exit::{Error, Result};

#[cfg(feature = "postgres")]
mod database;
mod folder;

#[cfg(feature = "postgres")]
pub use database::Database;
pub use folder::{
    absolute, letters, not_made, not_opened, owner_now, owner_within, reader_if_made,
};

/// A store that is open.
#[derive(Clone, Debug)]
pub enum Opened {
    /// In a folder.
    Folder(LocalStore),
    /// In a database.
    #[cfg(feature = "postgres")]
    Database(Database),
}

impl Opened {
    /// As any store.
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Opened::Folder(local) => Arc::new(local.clone()),
            #[cfg(feature = "postgres")]
            Opened::Database(database) => Arc::new(database.clone()),
        }
    }

    /// How many letters wait in its mailbox.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn letters_waiting(&self, global: &Global) -> Result<u64> {
        match self {
            Opened::Folder(_) => Ok(letters(&global.store).waiting),
            #[cfg(feature = "postgres")]
            Opened::Database(database) => Ok(database.about().await?.letters),
        }
    }

    /// Fails if nothing can be written to a database: of a folder its lock says so.
    ///
    /// # Errors
    /// That, with what to do; or it cannot be asked.
    pub async fn check_writable(&self) -> Result<()> {
        match self {
            Opened::Folder(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Opened::Database(database) => Ok(database.check_writable().await?),
        }
    }

    /// Lets go of it.
    ///
    /// # Errors
    /// It is not known whether what was written last is kept.
    pub fn close(&self) -> Result<()> {
        match self {
            Opened::Folder(local) => Ok(local.close()?),
            #[cfg(feature = "postgres")]
            Opened::Database(database) => Ok(database.close()?),
        }
    }
}

/// Opens the store for reading.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn reader(global: &Global) -> Result<Arc<dyn Store>> {
    Ok(any_reader(global)?.store())
}

/// The same, to be asked what it is.
///
/// # Errors
/// As [`reader`].
pub fn any_reader(global: &Global) -> Result<Opened> {
    match Place::of(&global.store) {
        Place::Folder(_) => folder::reader(global).map(Opened::Folder),
        Place::Database(address) => database(address, false),
    }
}

/// Who takes up what is said to the store's runs, in words; `None` if nobody does now.
pub fn owner_words(global: &Global) -> Option<String> {
    match Place::of(&global.store) {
        Place::Folder(_) => owner_now(global),
        Place::Database(_) => Some("its workers".to_owned()),
    }
}

/// Opens the store for saying something to its runs. Inside of [`crate::runtime::block_on`].
///
/// # Errors
/// As [`reader`].
pub fn remote(global: &Global) -> Result<Remote> {
    Ok(Remote::with(reader(global)?)?)
}

/// Opens the store to change it: a folder as its owner, a database beside others.
///
/// # Errors
/// As [`reader`]; or another process owns the folder, which is named.
pub fn writer(global: &Global) -> Result<Opened> {
    match Place::of(&global.store) {
        Place::Folder(_) => folder::owner(global).map(Opened::Folder),
        Place::Database(address) => database(address, false),
    }
}

/// The same; it is made if there is none.
///
/// # Errors
/// As [`writer`].
pub fn writer_or_new(store: &Path) -> Result<Opened> {
    match Place::of(store) {
        Place::Folder(dir) => {
            let opened = LocalStore::open(dir).map_err(|e| not_made(dir, e))?;
            Ok(Opened::Folder(opened))
        }
        Place::Database(address) => database(address, true),
    }
}

/// Opens the store in a database for a process that stays: with more patience than a command has. It is
/// made if there is none.
///
/// # Errors
/// It cannot be opened; or it is in a folder.
pub fn for_worker(store: &Path) -> Result<Opened> {
    match Place::of(store) {
        Place::Folder(_) => Err(Error::usage("a worker needs a store in a database")),
        #[cfg(feature = "postgres")]
        Place::Database(address) => database::open_to_stay(address).map(Opened::Database),
        #[cfg(not(feature = "postgres"))]
        Place::Database(address) => database(address, true),
    }
}

/// The store in a folder, for reading; `instead` is what a database has for it.
///
/// # Errors
/// As [`reader`]; or it is in a database.
pub fn folder_reader(global: &Global, command: &str, instead: &str) -> Result<LocalStore> {
    folder_only(global, command, instead)?;
    folder::reader(global)
}

/// The store in a folder, as its owner.
///
/// # Errors
/// As [`writer`]; or it is in a database.
pub fn folder_owner(global: &Global, command: &str, instead: &str) -> Result<LocalStore> {
    folder_only(global, command, instead)?;
    folder::owner(global)
}

/// Fails if the store is in a database, which a command has no meaning for.
///
/// # Errors
/// It is.
pub fn folder_only(global: &Global, command: &str, instead: &str) -> Result<()> {
    match Place::of(&global.store) {
        Place::Folder(_) => Ok(()),
        Place::Database(_) => Err(Error::usage(format!(
            "`dalsegno {command}` is for a store in a folder, and this one is in a database"
        ))
        .hint(instead)),
    }
}

#[cfg(feature = "postgres")]
fn database(address: &str, create: bool) -> Result<Opened> {
    database::open(address, create).map(Opened::Database)
}

#[cfg(not(feature = "postgres"))]
fn database(_: &str, _: bool) -> Result<Opened> {
    Err(
        Error::usage("this dalsegno was built without stores in databases")
            .hint("build it with the feature postgres, or name a folder with --store"),
    )
}
