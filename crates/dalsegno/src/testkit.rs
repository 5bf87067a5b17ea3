//! Kills your agent everywhere, and checks that nothing happened twice.
//!
//! [`CrashEverywhere`] runs an agent undisturbed, counts every moment at which a process could die
//! (before and after each append, after each sync, before, during and after each effect), and then
//! runs it again once per moment: there it dies, everything that was not synced is lost, a new
//! process takes over. At the end the result must be the same, and the [`World`] must have seen
//! each `once` effect exactly once and applied each `idempotent` one exactly once.
//!
//! Time is virtual: a two-day approval takes a millisecond. Everything is decided by the case's
//! number, so a failure can be played again; it prints the moments that led to it.
//!
//! ```
//! use dalsegno::testkit::{CrashEverywhere, World};
//! use dalsegno::{Ctx, Result};
//!
//! async fn order(ctx: Ctx, world: World, amount: u64) -> Result<u64> {
//!     let seen = world.clone();
//!     ctx.tool("charge").idempotent().input(&amount)
//!         .call(|call| { let world = seen.clone(); async move {
//!             world.idempotent("charge", call.key()).await; Ok(()) } })
//!         .await?;
//!     Ok(amount)
//! }
//!
//! let report = CrashEverywhere::new("order", &42, |builder, world| {
//!     builder.agent("order", move |ctx, amount| order(ctx, world.clone(), amount))
//! }).run().unwrap();
//! assert!(report.crashes > 10);
//! ```

mod crash;
mod executor;
mod life;
mod person;
mod schedule;
mod store;
mod world;

pub use crash::{Broken, CrashEverywhere, Report};
pub use executor::SimRuntime;
pub use person::{Ask, Reply, asks};
pub use schedule::Schedule;
pub use store::MortalStore;
pub use world::World;
