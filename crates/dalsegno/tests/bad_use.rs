//! Bad use gets good errors: each says what happened and what to do, and nothing is executed twice.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "bad_use/budgets.rs"]
mod budgets;
#[path = "bad_use/cancelling.rs"]
mod cancelling;
#[path = "bad_use/changed_code.rs"]
mod changed_code;
#[path = "bad_use/clocks.rs"]
mod clocks;
#[path = "bad_use/futures.rs"]
mod futures;
#[path = "bad_use/granularity.rs"]
mod granularity;
#[path = "common/machine.rs"]
mod machine;
#[path = "bad_use/panics.rs"]
mod panics;
#[path = "bad_use/stores.rs"]
mod stores;
#[path = "bad_use/values.rs"]
mod values;
