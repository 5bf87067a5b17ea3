//! `dalsegno approve` and `dalsegno deny`: answers to what a run asks for.

use dalsegno::Remote;

use super::order::{self, Order};
use crate::args::Global;
use crate::args::approve::{Approve, Deny};
use crate::exit::{Exit, Result};
use crate::output::{Out, time};
use crate::{asks, open, runtime};

/// Approves.
///
/// # Errors
/// The run asks for nothing like this, or the answer was not taken.
pub fn run(args: &Approve, global: &Global, out: &mut Out) -> Result<Exit> {
    runtime::block_on(async {
        let (run, by) = (&*args.run, &*args.who.by);
        let (remote, which) = asked(run, args.approval.as_deref(), global).await?;
        let sent = remote.approve(run, &which, by).await?;
        let said = said("approve", run, &which, format!("approved by {by}"));
        order::report(said, sent, &args.how, global, out).await
    })
}

/// Denies.
///
/// # Errors
/// As [`run`].
pub fn run_deny(args: &Deny, global: &Global, out: &mut Out) -> Result<Exit> {
    runtime::block_on(async {
        let (run, by) = (&*args.run, &*args.who.by);
        let (remote, which) = asked(run, args.approval.as_deref(), global).await?;
        let sent = remote.reject(run, &which, by, &args.why).await?;
        let said = said("deny", run, &which, format!("denied by {by}"));
        order::report(said, sent, &args.how, global, out).await
    })
}

/// What the answer is to: the request that is named, or the only one that is open.
async fn asked(run: &str, named: Option<&str>, global: &Global) -> Result<(Remote, String)> {
    let remote = open::remote(global)?;
    let journal = order::journal(&remote, run).await?;
    let open = asks::approvals(&journal, time::now_us());
    let which = order::the_one(run, "open request for approval", named, &open)?;
    Ok((remote, which))
}

fn said<'a>(order: &'static str, run: &'a str, which: &'a str, how: String) -> Order<'a> {
    Order {
        order,
        run,
        about: Some(which),
        words: format!("approval {which} {how}"),
    }
}
