//! What every store keeps, whatever it is made of: the same tests for each implementation.
//!
//! A test sees nothing but `&dyn Store`, and asks its [`World`](world::World) for what a store
//! cannot do itself: to be opened again, and to let time pass. An implementation is one
//! [`contract_tests!`] in a test of its crate, with a function that makes a world.
//!
//! Invariant: no test knows which store it tests.

#![allow(missing_docs)] // The names of the tests say what they show.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Makes a macro out of a list of contracts: one test for each of them.
macro_rules! listed {
    ($list:ident in $module:ident: $($test:ident,)*) => {
        listed! { @($) $list $module $($test)* }
    };
    (@($dollar:tt) $list:ident $module:ident $($test:ident)*) => {
        #[doc(hidden)]
        #[macro_export]
        macro_rules! $list {
            ($dollar make:path) => {
                $(
                    #[test]
                    fn $test() {
                        let world = $dollar make();
                        $dollar crate::world::block_on($dollar crate::$module::$test(world));
                    }
                )*
            };
        }
    };
}

pub mod atomicity;
pub mod changes;
pub mod foreign;
pub mod forgetting;
pub mod helpers;
pub mod leases;
pub mod letters;
pub mod lists;
pub mod payloads;
pub mod runs;
pub mod streams;
pub mod timers;
pub mod world;

/// All contracts as tests of one implementation, given the path of a function without arguments that
/// makes a [`World`](world::World).
#[macro_export]
macro_rules! contract_tests {
    ($make:path) => {
        $crate::atomicity_contract! { $make }
        $crate::changes_contract! { $make }
        $crate::foreign_contract! { $make }
        $crate::forgetting_contract! { $make }
        $crate::helpers_contract! { $make }
        $crate::leases_contract! { $make }
        $crate::letters_contract! { $make }
        $crate::lists_contract! { $make }
        $crate::payloads_contract! { $make }
        $crate::runs_contract! { $make }
        $crate::streams_contract! { $make }
        $crate::timers_contract! { $make }
    };
}
