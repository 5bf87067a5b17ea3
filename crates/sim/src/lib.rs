//! A simulated machine for the log and the store to crash on.
//!
//! [`disk`] is a file system in memory that loses, tears, reorders and fails whatever POSIX
//! allows, a crate of its own; [`rng`] is where all of its chance comes from. [`world`] lives one random life of a log
//! on it and compares every recovery with the [`model`]; [`campaign`] lives many; [`exhaustive`]
//! cuts the power at every operation of a small one. [`store_world`] lives a life of a whole store. A run is a pure function of its seed, so a
//! failure is reported as one number and can be played again.

pub mod campaign;
pub mod exhaustive;
pub mod model;
pub mod store_world;
pub mod world;

pub use dalsegno_simdisk as disk;
pub use dalsegno_simdisk::rng;
