//! The story: an agent of a dozen steps, the world that it acts on, and a person who answers it.
//!
//! Each is a process of its own, so that the agent's can be killed at any moment while the world
//! keeps count of what was done to it.
//!
//! ```text
//! story-worker ── HTTP ──► story-world      every request, with its key, in a ledger    world.rs
//!      │ store folder
//!      ▼
//!   mailbox ◄── letters ── a person         answers approvals, settles doubts           person.rs
//! ```
//!
//! Nothing here is part of the library; it is used by tests and by the demonstration.

pub mod agent;
pub mod http;
pub mod ledger;
pub mod library;
pub mod person;
pub mod worker;
pub mod world;
