//! What a growing conversation takes on disk: 400 calls of a model, each with all before it.

use std::path::Path;

use dalsegno_store::{Append, Kind, LocalStore, NewEvent, NewPayload, Store};

use super::{folder_bytes, megabytes, runs, runtime};
use crate::Error;
use crate::groups::{Emit, Setting};
use crate::measure::Round;
use crate::row::{Goal, Row};

const CALLS: usize = 400;
const MESSAGE_BYTES: usize = 2048;
const FRAME_HEADER_BYTES: usize = 40;

pub fn rows(setting: &Setting, emit: &mut Emit<'_>) -> Result<(), Error> {
    let mut random = Random(1);
    emit_rows(setting, emit, "incompressible", || {
        random.bytes(MESSAGE_BYTES)
    })?;
    let mut random = Random(1);
    emit_rows(setting, emit, "English-like", || {
        random.words(MESSAGE_BYTES)
    })
}

fn emit_rows(
    setting: &Setting,
    emit: &mut Emit<'_>,
    kind: &str,
    mut message: impl FnMut() -> Vec<u8>,
) -> Result<(), Error> {
    let dir = setting.dir.join("conversation");
    let store = LocalStore::open(&dir)?;
    let runtime = runtime()?;
    let run = runs::id(1)?;
    let begin = Append::to(run.clone(), runs::unfinished(2));
    let mut position = runtime.block_on(store.append(vec![begin]))?.position;
    let mut conversation = Vec::new();
    let mut whole = 0;
    for _ in 0..CALLS {
        conversation.extend(message());
        whole += conversation.len() as u64;
        let input = NewPayload::new("text/plain", conversation.clone());
        let call = NewEvent::new(Kind::StepIntended).with_input(input);
        let append = Append::to(run.clone(), vec![call]);
        position = runtime.block_on(store.append(vec![append]))?.position;
    }
    runtime.block_on(store.durable(position))?;
    store.close()?;
    for (what, bytes, goal) in [
        ("in the log", log_bytes(&dir)?, Goal::RatioAtMost(3.0)),
        ("if each were stored whole", whole, Goal::Shown),
        (
            "the folder, room made ahead included",
            folder_bytes(&dir)?,
            Goal::Shown,
        ),
    ] {
        emit(Row {
            name: format!("400 calls, {kind}: {what}"),
            unit: "MB",
            anchor_name: "the conversation at its end",
            goal,
            rounds: vec![Round {
                ours: megabytes(bytes),
                anchor: megabytes(conversation.len() as u64),
            }],
        });
    }
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// The frames of all records.
fn log_bytes(dir: &Path) -> Result<u64, Error> {
    let view = dalsegno_log::Options::new().open_read_only(dir.join("log"))?;
    let mut reader = view.read_from(1)?;
    let mut bytes = 0;
    while let Some(record) = reader.next_record()? {
        bytes += (record.payload.len() + FRAME_HEADER_BYTES).next_multiple_of(8) as u64;
    }
    Ok(bytes)
}

/// The same numbers in every run (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() >> 56) as u8).collect()
    }

    /// Words from a list, the first ones more often than the last.
    fn words(&mut self, count: usize) -> Vec<u8> {
        let words: Vec<&str> = WORDS.split_whitespace().collect();
        let mut text = Vec::new();
        while text.len() < count {
            let chance = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
            let at = (words.len() as f64).powf(chance) - 1.0;
            text.extend_from_slice(words[at as usize % words.len()].as_bytes());
            text.push(b' ');
        }
        text.truncate(count);
        text
    }
}

const WORDS: &str = "the of and to in a is that for it as was with be by on not he his but at are \
    this have from or had an which one you were all her she there would their we him been has when \
    who will no more if out so up said what its about than into them can only other time new some \
    could these two may first then do any like my now over such our man me even most made after \
    also did many off before must well back through years much where your way down should because \
    long each just state those people too mister how little good world make very year still see own \
    work men day get here between both life being under three never know same last another while us \
    might great old against system order address customer delivery invoice payment refund account \
    region harbour register verify question answer reason step result error retry later morning \
    evening package weight number street country message please thank regards support agent tool";
