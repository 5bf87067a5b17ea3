//! What a conversation costs that is sent whole with every call. Run with `--nocapture` to see the
//! figures.

use super::*;

const MESSAGES: usize = 400;
const MESSAGE_BYTES: usize = 2048;
/// What a record costs in the log, beside its bytes.
const FRAME_BYTES: usize = 64;

/// The most that random characters can hold: all bytes but those that JSON would escape. Zstd
/// makes nothing of it.
fn noise(random: &mut Random) -> Vec<u8> {
    let plain = |byte: &u8| *byte >= 0x20 && !matches!(byte, b'"' | b'\\');
    std::iter::repeat_with(|| random.next() as u8)
        .filter(plain)
        .take(MESSAGE_BYTES)
        .collect()
}

/// Random like a key or an encoded file: six bits per character.
fn base64(random: &mut Random) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    (0..MESSAGE_BYTES)
        .map(|_| DIGITS[random.below(64)])
        .collect()
}

/// Words, the n-th about n times rarer than the first, as in English. Zstd makes half of a message.
fn prose(random: &mut Random) -> Vec<u8> {
    const WORDS: f64 = 3000.0;
    let mut text = Vec::new();
    while text.len() < MESSAGE_BYTES {
        let part = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut letters = Random(WORDS.powf(part) as u64);
        for at in 0..2 + letters.below(7) {
            let from: &[u8] = [b"tnshrdlcmwfgypbvk".as_slice(), b"eaoiue"][at % 2];
            text.push(from[letters.below(from.len())]);
        }
        text.push(b' ');
    }
    text
}

struct Cost {
    conversation: usize,
    pieces: usize,
    stored: usize,
}

fn converse(name: &str, seed: u64, message: fn(&mut Random) -> Vec<u8>) -> Cost {
    let mut random = Random(seed);
    let mut store = Store::default();
    let mut splitter = Splitter::new();
    let mut payload = br#"{"model":"m","messages":["#.to_vec();
    let mut cost = Cost {
        conversation: 0,
        pieces: 0,
        stored: 0,
    };
    let mut last = None;
    for n in 0..MESSAGES {
        if n > 0 {
            payload.push(b',');
        }
        payload.extend(br#"{"role":"user","content":""#);
        payload.extend(message(&mut random));
        payload.extend(br#""}"#);
        let whole = [&payload[..], b"]}"].concat();
        let mut asked = 0;
        let new = splitter.split(&whole, |hash| {
            asked += 1;
            store.0.contains_key(hash)
        });
        assert!(asked < 120, "{asked} questions");
        let (pieces, stored) = store.add(&new);
        cost.conversation = whole.len();
        cost.pieces += pieces;
        cost.stored += stored + pieces * FRAME_BYTES;
        last = Some((new, whole));
    }
    let (new, whole) = last.unwrap();
    assert!(store.get(&new.root, new.len).unwrap() == whole);
    println!(
        "{name}: {} pieces, {} bytes for a conversation of {}: {:.3}",
        cost.pieces,
        cost.stored,
        cost.conversation,
        cost.ratio()
    );
    cost
}

impl Cost {
    fn ratio(&self) -> f64 {
        self.stored as f64 / self.conversation as f64
    }
}

#[test]
fn a_growing_conversation_costs_its_length() {
    for seed in 0..3 {
        assert!(converse("noise", seed, noise).ratio() < 2.2);
        assert!(converse("base64", seed, base64).ratio() < 1.7);
        assert!(converse("prose", seed, prose).ratio() < 1.3);
    }
}
