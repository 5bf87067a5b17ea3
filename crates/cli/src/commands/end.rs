//! `dalsegno end`: the run of a script has no end of its own.

use dalsegno::Failure;
use dalsegno::script;
use dalsegno_store::NewPayload;
use serde::Serialize;

use super::step::{AGENT, Access, of_worker, worker};
use crate::args::Global;
use crate::args::step::End;
use crate::exit::{Exit, Result};
use crate::output::Out;
use crate::run_lock::RunLock;
use crate::{open, runtime};

/// `dalsegno.end/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    run: &'a str,
    status: String,
}

/// Ends a run.
///
/// # Errors
/// There is none, it has ended otherwise, or the store does not work.
pub fn run(args: &End, global: &Global, out: &mut Out) -> Result<Exit> {
    let status = match of_worker::socket_of(global, &args.run) {
        Some(socket) => runtime::block_on(async {
            let result = args.fail.as_deref().map_or(Ok(args.result.as_deref()), Err);
            of_worker::end(&socket, &args.run, result).await
        })?,
        None => in_store(args, global)?,
    };
    if out.is_json() {
        out.json(&Document {
            schema: "dalsegno.end/1",
            run: &args.run,
            status,
        })?;
    }
    Ok(Exit::Done)
}

/// Ends a run that no worker has.
fn in_store(args: &End, global: &Global) -> Result<String> {
    // Says what is wrong if there is no store; nothing is made.
    drop(open::reader(global)?);
    let status = runtime::block_on(async {
        let what = "to end it";
        let lock = RunLock::take(&global.store, &args.run, what, args.wait).await?;
        let result = match &args.fail {
            Some(why) => Err(Failure::terminal(why)),
            None => {
                let text = args.result.as_ref();
                Ok(text.map(|text| NewPayload::json(serde_json::json!(text).to_string())))
            }
        };
        let access = Access::new(global, false, args.wait)?;
        let ended = access.with_run(&args.run, async |store| {
            script::end(store, &args.run, AGENT, &worker(), result.clone()).await
        });
        let ended = ended.await;
        lock.release();
        ended
    })?;
    Ok(status.to_string())
}
