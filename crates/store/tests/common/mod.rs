//! Histories for tests: the same from the same seed, on every machine.

#![allow(dead_code)] // Each test file uses some of it.
#![allow(clippy::unwrap_used)]

use dalsegno_store::payload::{Piece, split};
use dalsegno_store::portable::{About, Holds, PortableReport, PortableWriter};
use dalsegno_store::{
    Body, Event, EventRef, Fields, Hash, INLINE_LIMIT_BYTES, Kind, LetterRef, Payload, StreamId,
    Value, Version,
};

pub mod local;
// The log's tests have it; its `super` is this file.
#[path = "../../../log/tests/common/small_disk.rs"]
pub mod small_disk;

use local::this_program_args;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// What stands in a store's log, in order.
#[derive(Clone)]
#[allow(clippy::large_enum_variant)] // Tests have the memory.
pub enum Entry {
    Piece(Piece),
    Event(Event),
}

/// A payload as a store would keep it, and the pieces it needs.
pub fn payload(content_type: &str, bytes: &[u8]) -> (Payload, Vec<Piece>) {
    let (body, pieces) = if bytes.len() <= INLINE_LIMIT_BYTES {
        (Body::Inline(bytes.to_owned()), Vec::new())
    } else {
        let split = split(bytes, |_| false);
        let (root, bytes) = (split.root, split.len);
        (Body::Stored { root, bytes }, split.pieces)
    };
    let content_type = content_type.into();
    (Payload { content_type, body }, pieces)
}

/// Streams that interleave, whose payloads grow like conversations and share their beginnings.
pub fn random_history(random: &mut Random, streams: usize, events: usize) -> Vec<Entry> {
    let mut history = Vec::new();
    let shared = random.bytes(20_000);
    let mut sequences = vec![0; streams];
    for clock in 1..=events as u64 {
        let which = random.below(streams);
        sequences[which] += 1;
        let stream = match which {
            0 => StreamId::store(),
            _ if which.is_multiple_of(2) => StreamId::memory(&format!("m{which}")).unwrap(),
            _ => StreamId::run(&format!("r{which}")).unwrap(),
        };
        let kind = Kind::from_number(random.below(100) as u64 + 1);
        let mut event = Event::new(stream.clone(), sequences[which], clock, clock * 1000, kind);
        if random.below(2) == 0 {
            let mut bytes = shared[..random.below(shared.len())].to_owned();
            let more = random.below(3000);
            bytes.extend(random.bytes(more));
            let (input, pieces) = payload("application/octet-stream", &bytes);
            event.input = Some(input);
            history.extend(pieces.into_iter().map(Entry::Piece));
        }
        if sequences[which] > 1 {
            let sequence = sequences[which] - 1;
            event.cause = Some(EventRef { stream, sequence });
        }
        history.push(Entry::Event(event));
    }
    history
}

/// A small history with everything in it that the format has a word for.
pub fn golden_history() -> Vec<Entry> {
    let (run, memory) = (
        StreamId::run("order-42").unwrap(),
        StreamId::memory("küche/😀").unwrap(),
    );
    let mut random = Random(42);
    let mut history = Vec::new();
    let mut clock = 0;
    let mut event = |stream: &StreamId, sequence, kind| {
        clock += 1;
        Event::new(
            stream.clone(),
            sequence,
            clock,
            1_700_000_000_000_000 + clock,
            kind,
        )
    };

    let mut created = event(&run, 1, Kind::RunCreated);
    let (input, _) = payload("application/json", br#"{"order":42}"#);
    created.input = Some(input);
    created.fields = Fields::new().with(1, "cook");
    created.letter = Some(LetterRef {
        sender: "cli".into(),
        number: 7,
    });
    history.push(Entry::Event(created));

    let mut first = event(&memory, 1, Kind::MemoryUpdated);
    // Random bytes, which no compression makes shorter, and enough for two levels of nodes.
    let long = random.bytes(40_000);
    let (input, pieces) = payload("application/octet-stream", &long);
    first.input = Some(input);
    let seen = Version::START.after(&first.encode());
    history.extend(pieces.into_iter().map(Entry::Piece));
    history.push(Entry::Event(first));

    let mut intended = event(&run, 2, Kind::StepIntended);
    // The same beginning, so mostly the same pieces.
    let (input, pieces) = payload("application/octet-stream", &[&long[..], b"!"].concat());
    intended.input = Some(input);
    intended.memory = Some(seen);
    intended.sources = vec!["a page".into(), String::new()];
    intended.cause = Some(EventRef {
        stream: memory.clone(),
        sequence: 1,
    });
    history.extend(pieces.into_iter().map(Entry::Piece));
    history.push(Entry::Event(intended));

    let mut succeeded = event(&run, 3, Kind::StepSucceeded);
    // Text, which is compressed.
    let text = "The kitchen is closed on Mondays. ".repeat(100);
    let (output, pieces) = payload("text/plain", text.as_bytes());
    succeeded.output = Some(output);
    succeeded.fields = Fields::new()
        .with(1, u64::MAX)
        .with(2, true)
        .with(3, vec![0, 255])
        .with(4, Value::List(vec![1.into(), Value::List(vec![])]))
        .with(300, "far");
    history.extend(pieces.into_iter().map(Entry::Piece));
    history.push(Entry::Event(succeeded));

    for (sequence, kind) in [
        (4, Kind::User("cooked".into())),
        (5, Kind::from_number(4711)),
        (6, Kind::RunCompleted),
    ] {
        history.push(Entry::Event(event(&run, sequence, kind)));
    }
    history.push(Entry::Event(event(
        &StreamId::store(),
        1,
        Kind::StoreRecovered,
    )));
    history
}

/// The history as a portable file.
pub fn write_portable(history: &[Entry], holds: Holds) -> (Vec<u8>, PortableReport) {
    let about = About {
        holds,
        created_us: 1_700_000_000_000_000,
    };
    let mut writer = PortableWriter::new(Vec::new(), about).unwrap();
    for entry in history {
        match entry {
            Entry::Piece(piece) => {
                let known = writer.has_piece(&piece.hash);
                assert_eq!(writer.piece(&piece.hash, &piece.bytes).unwrap(), !known);
            }
            Entry::Event(event) => drop(writer.event(&event.encode()).unwrap()),
        }
    }
    writer.finish().unwrap()
}

/// The hash of a piece in a history, by its place among the pieces.
pub fn piece_hashes(history: &[Entry]) -> Vec<Hash> {
    let hash = |entry: &Entry| match entry {
        Entry::Piece(piece) => Some(piece.hash),
        Entry::Event(_) => None,
    };
    history.iter().filter_map(hash).collect()
}
