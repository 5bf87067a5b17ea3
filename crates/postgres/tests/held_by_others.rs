//! What is appended to a run that another process holds is a letter until that one takes it up. All of
//! it arrives.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use dalsegno_contract::world::{block_on, noted};
use dalsegno_pgtest::Server;
use dalsegno_store::{Append, NewPayload, Store};

#[test]
fn a_large_payload_for_a_run_that_another_holds_arrives() {
    let url = Server::shared().url();
    let (holder, other) = (open(&url), open(&url));
    let run = create(&holder, "held");
    take(&holder, &run, "a worker", 3600 * SECOND_US);
    let large = NewPayload::json("large ".repeat(5000));
    let said = noted(1).with_output(large.clone());
    block_on(other.append(vec![Append::to(run.clone(), vec![said])])).unwrap();
    assert_eq!(block_on(holder.take_letters()).unwrap().taken.len(), 1);
    let events = all(&holder, &run);
    let output = events.last().unwrap().event.output.clone().unwrap();
    assert_eq!(block_on(holder.payload(&output)).unwrap(), large.bytes);
}
