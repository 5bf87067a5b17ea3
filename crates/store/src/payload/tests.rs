//! Splitting and putting together again: the same for ever, whole or refused.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::convert::Infallible;

use super::cut::{LEAF_MAX_BYTES, LEAF_MIN_BYTES, LEAF_USUAL_BYTES, NODE_MAX_CHILDREN};
use super::piece::{leaf_hash, node_hash, write_leaf, write_node};
use super::*;
use crate::hash::Hash;

mod conversations;
mod damage;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

#[derive(Default)]
struct Store(HashMap<Hash, Vec<u8>>);

impl Store {
    /// Stores what is new and gives how many pieces and bytes that was.
    fn add(&mut self, split: &Split) -> (usize, usize) {
        for piece in &split.pieces {
            check(&piece.hash, &piece.bytes).unwrap();
            for child in children(&piece.bytes).unwrap() {
                assert!(self.0.contains_key(&child.hash), "a parent came first");
            }
            let old = self.0.insert(piece.hash, piece.bytes.clone());
            assert!(old.is_none(), "given again: {:?}", piece.hash);
        }
        let bytes = split.pieces.iter().map(|piece| piece.bytes.len()).sum();
        (split.pieces.len(), bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Split {
        let new = split(bytes, |hash| self.0.contains_key(hash));
        self.add(&new);
        new
    }

    fn get(&self, root: &Hash, len: u64) -> Result<Vec<u8>, AssembleError<&'static str>> {
        assemble(root, len, 1 << 30, |hash| {
            self.0.get(hash).ok_or("not there")
        })
    }
}

fn round_trip(bytes: &[u8]) -> Split {
    let mut store = Store::default();
    let new = store.put(bytes);
    assert_eq!(new.len, bytes.len() as u64);
    let back = store.get(&new.root, new.len).unwrap();
    assert!(back == bytes, "{} bytes came back changed", bytes.len());
    assert!(store.put(bytes).pieces.is_empty());
    new
}

/// Computed by the first version of this format. They never change.
#[test]
fn the_same_roots_for_ever() {
    let phrase = b"ten green bottles standing on the wall and one more ";
    for (bytes, pieces, root) in [
        (
            vec![],
            1,
            "762874d9869926ddfb41b9a56744cde3013fc6ea4548ba752bf934282f0f8f48",
        ),
        (
            b"a".to_vec(),
            1,
            "62f4737d26f10a381a7b11b2d705bfdb50736e4450ca7f58d0cfd0d67699e832",
        ),
        (
            Random(1).bytes(1000),
            1,
            "354fc7811e4dffed453f1def1a553a394c618e15ea5480c05d411b26a373175d",
        ),
        (
            Random(2).bytes(10_000),
            11,
            "51f586176327e2660caa6229de41791cbf64d7df051596b47cfddec86b1717a8",
        ),
        (
            Random(3).bytes(1_000_000),
            927,
            "8ae333675f6c2635a6914e2889d9cbdbd6e9a12bc7fa248b0998a810e5087eff",
        ),
        (
            vec![0; 1_000_000],
            5,
            "90d628e3d6cb924d0000b16f294f5df1cd079fa284b18ae67c9aa13f15df5714",
        ),
        (
            phrase.repeat(10_000),
            23,
            "595e09093c85623af2464772f0dfcf1d32e1565a13e670a5846013b61d250b7d",
        ),
    ] {
        let new = split(&bytes, |_| false);
        assert_eq!(
            (new.root.to_string().as_str(), new.pieces.len()),
            (root, pieces),
            "{} bytes",
            bytes.len()
        );
    }
}

#[test]
fn every_length_comes_back() {
    let mut random = Random(4);
    let around = |len: usize| len.saturating_sub(2)..=len + 2;
    let lengths = around(0)
        .chain(around(128))
        .chain(around(LEAF_MIN_BYTES))
        .chain(around(LEAF_USUAL_BYTES))
        .chain(around(LEAF_MAX_BYTES))
        .chain([100_000, 3_333_333]);
    for len in lengths {
        round_trip(&random.bytes(len));
        round_trip(&vec![b'x'; len]);
    }
    for _ in 0..300 {
        // Patches of random bytes and of repeated ones.
        let mut bytes = Vec::new();
        for _ in 0..random.below(6) {
            let bits = random.below(15);
            let len = random.below(1 << bits);
            if random.below(2) == 0 {
                bytes.extend(random.bytes(len));
            } else {
                bytes.extend(vec![random.next() as u8; len]);
            }
        }
        round_trip(&bytes);
    }
}

#[test]
fn what_fits_into_a_leaf_is_one() {
    for len in [0, 1, LEAF_MIN_BYTES] {
        let new = round_trip(&Random(5).bytes(len));
        assert_eq!(new.pieces.len(), 1);
        assert_eq!(children(&new.pieces[0].bytes).unwrap(), []);
    }
}

#[test]
fn pieces_have_the_lengths_that_the_rule_says() {
    let bytes = Random(6).bytes(4_000_000);
    let new = split(&bytes, |_| false);
    let (mut leaves, mut nodes, mut listed) = (0, 0, 0);
    for piece in &new.pieces {
        match children(&piece.bytes).unwrap().len() {
            0 => leaves += 1,
            n => {
                nodes += 1;
                listed += n;
                assert!((2..=NODE_MAX_CHILDREN).contains(&n));
            }
        }
    }
    let (leaf, fan_out) = (bytes.len() / leaves, listed / nodes);
    println!("{leaves} leaves of {leaf} bytes, {nodes} nodes of {fan_out} children on average");
    assert!((900..1400).contains(&leaf), "{leaf}");
    assert!((7..11).contains(&fan_out), "{fan_out}");
}

#[test]
fn an_edit_in_the_middle_costs_its_surroundings() {
    let bytes = Random(7).bytes(1_000_000);
    let at = 500_000;
    let insert = [&bytes[..at], b"something new", &bytes[at..]].concat();
    let delete = [&bytes[..at], &bytes[at + 100..]].concat();
    let moved = [&bytes[at..], &bytes[..at]].concat();
    let mut replace = bytes.clone();
    replace[at] ^= 1;
    for (what, edited) in [
        ("insert", insert),
        ("delete", delete),
        ("replace", replace),
        ("move", moved),
    ] {
        let mut store = Store::default();
        store.put(&bytes);
        let new = split(&edited, |hash| store.0.contains_key(hash));
        let (pieces, stored) = store.add(&new);
        println!("{what}: {pieces} pieces, {stored} bytes");
        assert!(stored < 15_000, "{what}: {stored}");
        assert!(store.get(&new.root, new.len).unwrap() == edited);
    }
}

#[test]
fn repeated_content_is_stored_once() {
    let stored = |bytes: &[u8]| {
        let (pieces, stored) = Store::default().add(&split(bytes, |_| false));
        println!("{pieces} pieces, {stored} bytes for {}", bytes.len());
        stored
    };
    assert!(stored(&vec![0; 10_000_000]) < 10_000);
    let passage = Random(8).bytes(100_000);
    assert!(stored(&passage.repeat(10)) < 140_000);
}

#[test]
fn a_splitter_gives_what_split_gives() {
    let mut random = Random(9);
    let mut store = Store::default();
    let mut splitter = Splitter::new();
    let mut bytes = Vec::new();
    for _ in 0..500 {
        match random.below(5) {
            0 => bytes.truncate(random.below(bytes.len() + 1)),
            1 if !bytes.is_empty() => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1;
            }
            2 if random.below(20) == 0 => bytes.clear(),
            _ => {
                let len = random.below(6000);
                bytes.extend(random.bytes(len));
            }
        }
        let quick = splitter.split(&bytes, |hash| store.0.contains_key(hash));
        assert_eq!(quick, split(&bytes, |hash| store.0.contains_key(hash)));
        // Sometimes the pieces are lost: the splitter must not take them for stored.
        if random.below(3) > 0 {
            store.add(&quick);
        }
    }
}

#[test]
fn below_a_known_piece_nothing_is_asked() {
    let bytes = Random(10).bytes(100_000);
    let mut asked = 0;
    let new = split(&bytes, |_| {
        asked += 1;
        true
    });
    assert_eq!((new.pieces.len(), asked), (0, 1));
}

#[test]
fn compressed_only_where_it_pays() {
    for (content, tag) in [
        (vec![b'a'; 127], 1),
        (vec![b'a'; 128], 2),
        (Random(11).bytes(1000), 1),
    ] {
        assert_eq!(write_leaf(&content)[0], tag);
    }
}

#[test]
fn a_node_is_never_a_leaf() {
    let bytes = Random(12).bytes(20_000);
    let new = split(&bytes, |_| false);
    let node = &new.pieces.last().unwrap().bytes;
    let leaf = write_leaf(&node[1..]);
    assert_eq!(leaf[1..], node[1..], "the same content");
    assert!(matches!(
        check(&new.root, &leaf),
        Err(BadPiece::Hash { .. })
    ));
}

#[test]
fn a_missing_piece_is_named() {
    let mut store = Store::default();
    let new = store.put(&Random(13).bytes(20_000));
    let lost = new.pieces[2].hash;
    store.0.remove(&lost);
    let error = store.get(&new.root, new.len).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("could not fetch the piece {lost}: not there")
    );
}

#[test]
fn too_long_is_refused_before_anything_is_fetched() {
    let fetch = |_: &Hash| -> Result<Vec<u8>, Infallible> { panic!("fetched") };
    let error = assemble(&Hash::ZERO, 11, 10, fetch).unwrap_err();
    assert_eq!(error, AssembleError::TooLong { len: 11, limit: 10 });
}
