//! What users of other systems complained about, each as a test with the name of its origin.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "complaints/answers.rs"]
mod answers;
#[path = "complaints/effects.rs"]
mod effects;
#[path = "complaints/freezing.rs"]
mod freezing;
#[path = "common/machine.rs"]
mod machine;
#[path = "complaints/resuming.rs"]
mod resuming;
#[path = "complaints/workers.rs"]
mod workers;
