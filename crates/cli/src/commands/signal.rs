//! `dalsegno signal`: tells a run something that it may wait for.

use std::io::Read;

use dalsegno_store::{Limits, Store};
use serde_json::Value;

use super::order::{self, Order};
use super::resolve::json;
use crate::args::Global;
use crate::args::signal::Signal;
use crate::exit::{Error, Exit, Result};
use crate::output::Out;
use crate::{find, open, runtime};

/// Sends a signal.
///
/// # Errors
/// There is no such run, it has ended, or the signal was not taken.
pub fn run(args: &Signal, global: &Global, out: &mut Out) -> Result<Exit> {
    let value = value(args)?;
    runtime::block_on(async {
        let remote = open::remote(global)?;
        let store: &dyn Store = &**remote.store();
        find::run(store, &args.run).await?;
        let sent = remote.signal(&args.run, &args.name, &value).await?;
        let said = Order {
            order: "signal",
            run: &args.run,
            about: Some(&args.name),
            words: format!("signal {}", args.name),
        };
        order::report(said, sent, &args.how, global, out).await
    })
}

fn value(args: &Signal) -> Result<Value> {
    match (&args.text, args.value.as_str()) {
        (Some(text), _) => Ok(Value::String(text.clone())),
        (None, "-") => json(&standard_input()?, "the standard input"),
        (None, text) => json(text, "the value"),
    }
}

/// No more than a letter can take, and a byte to notice that it is more.
fn standard_input() -> Result<String> {
    let limit = Limits::default().letter_bytes;
    let mut text = String::new();
    let read = std::io::stdin().take(limit + 1).read_to_string(&mut text);
    read.map_err(|e| Error::failed(format!("cannot read the standard input: {e}")))?;
    match text.len() as u64 > limit {
        true => Err(
            Error::usage(format!("the standard input is longer than {limit} bytes"))
                .hint("put it into a file, and send its name"),
        ),
        false => Ok(text),
    }
}
