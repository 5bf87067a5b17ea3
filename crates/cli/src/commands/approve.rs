//! `dalsegno approve` and `dalsegno deny`: answers to what a run asks for.

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
        let remote = open::remote(global)?;
        let journal = order::journal(&remote, &args.run).await?;
        let open = asks::approvals(&journal, time::now_us());
        let named = args.approval.as_deref();
        let which = order::the_one(&args.run, "open request for approval", named, &open)?;
        let by = &args.who.by;
        let sent = remote.approve(&args.run, &which, by).await?;
        let said = Order {
            order: "approve",
            run: &args.run,
            about: Some(&which),
            words: format!("approval {which} approved by {by}"),
        };
        order::report(said, sent, &args.how, global, out).await
    })
}

/// Denies.
///
/// # Errors
/// As [`run`].
pub fn run_deny(args: &Deny, global: &Global, out: &mut Out) -> Result<Exit> {
    runtime::block_on(async {
        let remote = open::remote(global)?;
        let journal = order::journal(&remote, &args.run).await?;
        let open = asks::approvals(&journal, time::now_us());
        let named = args.approval.as_deref();
        let which = order::the_one(&args.run, "open request for approval", named, &open)?;
        let by = &args.who.by;
        let sent = remote.reject(&args.run, &which, by, &args.why).await?;
        let said = Order {
            order: "deny",
            run: &args.run,
            about: Some(&which),
            words: format!("approval {which} denied by {by}"),
        };
        order::report(said, sent, &args.how, global, out).await
    })
}
