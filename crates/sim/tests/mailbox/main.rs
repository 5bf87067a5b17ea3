//! The mailbox on a disk that crashes, fails and races: what was acknowledged happens, once, and in
//! the order of its sender.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod crashes;
mod failures;
mod owner;
mod races;
mod rot;
