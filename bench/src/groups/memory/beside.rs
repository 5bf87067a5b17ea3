//! The memory beside memvid and tantivy, on the same texts in the same minutes.
//!
//! They have the texts only: no vectors. What they call a commit is their promise that texts stay,
//! so it is in their adding, as ours is in ours.

use std::path::Path;
use std::time::Instant;

use dalsegno_memory::{NewDocument, Query};

use super::peer::Peer;
use super::speed::{AT_ONCE, Filled};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::{Round, alternate, median, median_micros};
use crate::row::{Goal, Row};

/// How many searches make a slice of a peer, whose times come over a pipe.
const SEARCHES: usize = 40;
/// Adding to a memvid rewrites its file: a few rounds take minutes.
const ADDING_ROUNDS: usize = 5;

/// All rows but those of opening, for which the processes are handed over.
pub fn rows(
    setting: &Setting,
    program: &Path,
    filled: &mut Filled,
    emit: &mut Emit<'_>,
) -> Result<Vec<(&'static str, Peer)>, Error> {
    // What is added while measuring has to be in the file too.
    let size = filled.texts.len();
    let more = (ADDING_ROUNDS + 1) * (AT_ONCE + 1);
    let mut texts = filled.texts.clone();
    texts.extend((0..more).map(|_| filled.chance.text()));
    let file = setting.dir.join("texts");
    std::fs::write(&file, texts.join("\n"))?;

    let mut peers = Vec::new();
    for name in ["memvid", "tantivy"] {
        let folder = setting.dir.join(name);
        let mut peer = Peer::start(program, name, &file, &folder)?;
        if let Err(error) = peer.add(size) {
            // memvid takes 50 MB without a ticket of its makers: about 10,000 documents.
            eprintln!("warning: not beside {name}, which does not take {size} documents: {error}");
            continue;
        }
        let mut turn = filled.queries.iter().cycle();
        let mut theirs = turn.clone();
        let rounds = alternate(
            setting.rounds,
            || {
                median_micros(|| match turn.next() {
                    Some(words) => filled.search(Query::words(words.as_str())),
                    None => Ok(()),
                })
            },
            || {
                let mut micros = Vec::new();
                for words in theirs.by_ref().take(SEARCHES) {
                    micros.push(peer.search(10, words)?.micros);
                }
                Ok(median(&micros))
            },
        )?;
        emit(Row {
            name: format!("search by words, {size} documents"),
            unit: "us",
            anchor_name: name,
            goal: Goal::Shown,
            rounds,
        });
        for count in [1, AT_ONCE] {
            let rounds = adding(filled, &mut peer, count)?;
            emit(Row {
                name: format!("{count} added at a time, durable"),
                unit: "documents/s",
                anchor_name: name,
                goal: match name {
                    "memvid" => Goal::RatioAtLeast(10.0),
                    _ => Goal::Shown,
                },
                rounds,
            });
        }
        peers.push((name, peer));
    }
    Ok(peers)
}

/// Documents per second on each side.
fn adding(filled: &mut Filled, peer: &mut Peer, count: usize) -> Result<Vec<Round>, Error> {
    let mut rounds = Vec::new();
    for _ in 0..ADDING_ROUNDS {
        let new: Vec<NewDocument> = (0..count)
            .map(|_| NewDocument::document(filled.chance.text()))
            .collect();
        let begun = Instant::now();
        filled.runtime.block_on(filled.memory.add_many(new))?;
        let ours = count as f64 / begun.elapsed().as_secs_f64();
        let anchor = count as f64 / (peer.add(count)? / 1e6);
        rounds.push(Round { ours, anchor });
    }
    Ok(rounds)
}
