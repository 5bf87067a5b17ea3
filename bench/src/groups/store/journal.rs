//! One run of 5,000 steps, read back as a worker does that takes it over.
//!
//! The anchor walks over the same events in memory and computes their chain of hashes: nobody who
//! checks what was read can do less.

use std::hint::black_box;
use std::time::Instant;

use dalsegno_store::{Append, Hash, LocalStore, NewPayload, Recorded, Store, StreamId};
use tokio::runtime::Runtime;

use super::{runs, runtime};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::{Round, alternate};
use crate::row::{Goal, Row};

const EVENTS: u64 = 10_000;
/// Of one append, which has to fit into a segment.
const BATCH_EVENTS: usize = 500;
const PAYLOAD_BYTES: usize = 2048;

pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let runtime = runtime()?;
    let run = runs::id(1)?;
    for payload_bytes in [0, PAYLOAD_BYTES] {
        let dir = setting.dir.join("journal");
        let mut store = LocalStore::open(&dir)?;
        write(&runtime, &store, &run, payload_bytes)?;
        for when in ["just written", "sealed and reopened"] {
            if when != "just written" {
                store.seal()?;
                store.close()?;
                store = LocalStore::open(&dir)?;
            }
            let rounds = contest(setting, || runtime.block_on(read(&store, &run, false)))?;
            let what = match payload_bytes {
                0 => "",
                _ => " with outputs of 2 KB",
            };
            emit(Row {
                name: format!("journal of 5,000 steps{what}, {when}"),
                unit: "ms",
                anchor_name: "the chain of hashes over the same events",
                goal: Goal::OursBelow(10.0),
                rounds,
            });
            if payload_bytes > 0 {
                let rounds = contest(setting, || runtime.block_on(read(&store, &run, true)))?;
                emit(Row {
                    name: format!("the same and all outputs, {when}"),
                    unit: "ms",
                    anchor_name: "the chain of hashes over the same events",
                    goal: Goal::Shown,
                    rounds,
                });
            }
        }
        store.close()?;
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

fn write(
    runtime: &Runtime,
    store: &LocalStore,
    run: &StreamId,
    payload_bytes: usize,
) -> Result<(), Error> {
    let mut events = runs::unfinished(EVENTS);
    for (number, event) in (0_u64..).zip(&mut events) {
        if let Some(output) = event.output.as_mut().filter(|_| payload_bytes > 0) {
            *output = NewPayload::json(text(number, payload_bytes));
        }
    }
    let mut position = 0;
    for batch in events.chunks(BATCH_EVENTS) {
        let append = Append::to(run.clone(), batch.to_vec());
        position = runtime.block_on(store.append(vec![append]))?.position;
    }
    runtime.block_on(store.durable(position))?;
    Ok(())
}

/// Text that is another for each number.
fn text(number: u64, bytes: usize) -> String {
    let mut text = String::new();
    let mut line = 0;
    while text.len() < bytes {
        text += &format!("{{\"result\":{number},\"line\":{line},\"value\":\"ok\"}} ");
        line += 1;
    }
    text.truncate(bytes);
    text
}

async fn read(
    store: &LocalStore,
    run: &StreamId,
    with_outputs: bool,
) -> Result<Vec<Recorded>, Error> {
    let events = store.read(run, 1, usize::MAX).await?;
    if events.len() as u64 != EVENTS {
        return Err(format!("{} events were read of {EVENTS}", events.len()).into());
    }
    if with_outputs {
        for payload in events.iter().filter_map(|read| read.event.output.as_ref()) {
            black_box(store.payload(payload).await?);
        }
    }
    Ok(events)
}

fn contest(
    setting: &Setting,
    read: impl Fn() -> Result<Vec<Recorded>, Error>,
) -> Result<Vec<Round>, Error> {
    let events = read()?;
    let bytes: Vec<Vec<u8>> = events.iter().map(|read| read.event.encode()).collect();
    alternate(
        setting.rounds,
        || {
            let start = Instant::now();
            let events = read()?;
            let millis = start.elapsed().as_secs_f64() * 1e3;
            black_box(events);
            Ok(millis)
        },
        || {
            let start = Instant::now();
            black_box(
                bytes
                    .iter()
                    .fold(Hash::ZERO, |hash, event| hash.chain(event)),
            );
            Ok(start.elapsed().as_secs_f64() * 1e3)
        },
    )
}
