//! `dalsegno cancel`: asks a run and its children to end.

use dalsegno_store::Store;

use super::order::{self, Order};
use crate::args::Global;
use crate::args::cancel::Cancel;
use crate::exit::{Exit, Result};
use crate::output::Out;
use crate::{find, open, runtime};

/// Asks for the end.
///
/// # Errors
/// There is no such run, it has ended, or what was said was not taken.
pub fn run(args: &Cancel, global: &Global, out: &mut Out) -> Result<Exit> {
    runtime::block_on(async {
        let remote = open::remote(global)?;
        let store: &dyn Store = &**remote.store();
        find::run(store, &args.run).await?;
        let sent = remote.cancel(&args.run, &args.reason).await?;
        let said = Order {
            order: "cancel",
            run: &args.run,
            about: None,
            words: "asked to end".to_owned(),
        };
        order::report(said, sent, &args.how, global, out).await
    })
}
