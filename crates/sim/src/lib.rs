//! A simulated machine for the log to crash on.
//!
//! [`disk`] is a file system in memory that loses, tears, reorders and fails whatever POSIX
//! allows; [`rng`] is where all of its chance comes from. A run is a pure function of its seed,
//! so a failure is reported as one number and can be played again.

pub mod disk;
pub mod rng;
