//! What every store keeps, whatever it is made of: the same tests for each implementation.
//!
//! A test sees nothing but `&dyn Store`, and asks its `World` for what a store cannot do itself: to
//! be opened again, and to let time pass. Another implementation is one line in `contract_tests`
//! and one function in `contract/world.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// One test per contract and implementation.
macro_rules! contract_tests {
    ($($test:ident,)*) => {
        contract_tests! { for local: $($test,)* }
        contract_tests! { for simulated: $($test,)* }
    };
    (for $implementation:ident: $($test:ident,)*) => {
        mod $implementation {
            use crate::contract::world::{block_on, implementations};
            $(
                #[test]
                fn $test() {
                    block_on(super::$test(implementations::$implementation()));
                }
            )*
        }
    };
}

mod contract {
    mod atomicity;
    mod changes;
    mod leases;
    mod letters;
    mod lists;
    mod payloads;
    mod runs;
    mod streams;
    mod timers;
    pub mod world;
}
