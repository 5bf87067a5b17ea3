//! Other programs that remember, for `dalsegno-bench memory --peers`. Built apart, with crates of its own.
//!
//! `peers NAME TEXTS FOLDER`: NAME is memvid, tantivy, or tantivy-words (texts are words already, nothing
//! is stemmed); TEXTS has one text a line. Each line of the input is answered by one line:
//!
//! | ask | answer |
//! |---|---|
//! | `add N` | microseconds until the next N texts are durable |
//! | `search LIMIT WORDS` | microseconds, then the places of the texts found |
//! | `reopen` | microseconds to open again, and search once |

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

mod memvid;
mod tantivy_index;

type Failure = Box<dyn Error + Send + Sync>;

/// A program that remembers texts by their places.
trait Peer {
    fn add(&mut self, place: usize, text: &str) -> Result<(), Failure>;
    fn commit(&mut self) -> Result<(), Failure>;
    fn search(&mut self, limit: usize, words: &str) -> Result<Vec<usize>, Failure>;
    fn reopen(&mut self) -> Result<(), Failure>;
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, texts, folder] = arguments.as_slice() else {
        return Err("usage: peers memvid|tantivy|tantivy-words TEXTS FOLDER".into());
    };
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder)?;
    let mut peer: Box<dyn Peer> = match name.as_str() {
        "memvid" => Box::new(memvid::Memory::new(folder)?),
        "tantivy" => Box::new(tantivy_index::Texts::new(folder, "en_stem")?),
        "tantivy-words" => Box::new(tantivy_index::Texts::new(folder, "whitespace")?),
        other => return Err(format!("there is no peer '{other}'").into()),
    };
    let texts = std::fs::read_to_string(texts)?;
    let mut texts = texts.lines().enumerate();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (ask, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let begun = Instant::now();
        let mut found = Vec::new();
        match ask {
            "add" => {
                for (place, text) in texts.by_ref().take(rest.parse()?) {
                    peer.add(place, text)?;
                }
                peer.commit()?;
            }
            "search" => {
                let (limit, words) = rest.split_once(' ').ok_or("search LIMIT WORDS")?;
                found = peer.search(limit.parse()?, words)?;
            }
            "reopen" => {
                peer.reopen()?;
                peer.search(10, "w1")?;
            }
            other => return Err(format!("cannot do '{other}'").into()),
        }
        write!(out, "{:.1}", begun.elapsed().as_secs_f64() * 1e6)?;
        for place in found {
            write!(out, " {place}")?;
        }
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}
