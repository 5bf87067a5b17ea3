//! No bytes are taken for a piece that they are not, none panic, and none cost more than they may.

use super::*;

/// A leaf as it is, a leaf compressed, a node, each with its hash.
fn samples() -> Vec<Piece> {
    let noise = Random(20).bytes(300);
    let words = b"again and again ".repeat(20);
    let hash = leaf_hash(&noise);
    let pair = [300, 70_000].map(|len| Child { hash, len });
    let node = write_node(pair.into_iter());
    vec![
        Piece {
            hash,
            bytes: write_leaf(&noise),
        },
        Piece {
            hash: leaf_hash(&words),
            bytes: write_leaf(&words),
        },
        Piece {
            hash: node_hash(&node[1..]),
            bytes: node,
        },
    ]
}

/// Stores the node and gives its hash.
fn node(store: &mut Store, children: &[Child]) -> Hash {
    let bytes = write_node(children.iter().copied());
    let hash = node_hash(&bytes[1..]);
    store.0.insert(hash, bytes);
    hash
}

fn leaf(store: &mut Store, content: &[u8]) -> Child {
    let hash = leaf_hash(content);
    store.0.insert(hash, write_leaf(content));
    Child {
        hash,
        len: content.len() as u64,
    }
}

#[test]
fn no_changed_piece_is_accepted() {
    for (kind, piece) in samples().into_iter().enumerate() {
        let whole = read_back(&piece.hash, &piece.bytes);
        let mut changed = Vec::new();
        for at in 0..piece.bytes.len() {
            changed.push(piece.bytes[..at].to_vec());
            for bit in 0..8 {
                let mut bytes = piece.bytes.clone();
                bytes[at] ^= 1 << bit;
                changed.push(bytes);
            }
        }
        changed.push([&piece.bytes[..], b"x"].concat());
        let mut same = 0;
        for bytes in &changed {
            let _ = children(bytes);
            if check(&piece.hash, bytes).is_ok() {
                assert_eq!(read_back(&piece.hash, bytes), whole);
                same += 1;
            }
        }
        // A zstd frame has a few bits that mean nothing to its content. The log's checksums see
        // those too.
        let most = if kind == 1 { 4 } else { 0 };
        println!("{same} of {} changes mean nothing", changed.len());
        assert!(same <= most, "{same} changed pieces were accepted");
    }
}

/// The content of a leaf; nothing for a node.
fn read_back(hash: &Hash, bytes: &[u8]) -> Option<Vec<u8>> {
    (0..=400).find_map(|len| assemble(hash, len, 400, |_| Ok::<_, Infallible>(bytes)).ok())
}

#[test]
fn no_bytes_panic() {
    let mut random = Random(21);
    let samples = samples();
    for _ in 0..20_000 {
        let mut bytes = samples[random.below(3)].bytes.clone();
        match random.below(3) {
            0 => {
                let tag = random.below(5) as u8;
                let len = random.below(200);
                bytes = [&[tag], &random.bytes(len)[..]].concat();
            }
            1 => bytes.truncate(random.below(bytes.len())),
            _ => {
                for _ in 0..1 + random.below(8) {
                    let at = random.below(bytes.len());
                    bytes[at] = random.next() as u8;
                }
            }
        }
        let _ = children(&bytes);
        let len = random.below(1000) as u64;
        for piece in &samples {
            let _ = check(&piece.hash, &bytes);
            let fetch = |_: &Hash| Ok::<_, Infallible>(&bytes);
            let _ = assemble(&piece.hash, len, 1 << 20, fetch);
        }
    }
}

#[test]
fn lengths_that_lie_are_refused() {
    let mut store = Store::default();
    let new = store.put(&Random(22).bytes(30_000));
    for len in [0, 1, 29_999, 30_001, 1 << 29] {
        assert_eq!(
            store.get(&new.root, len),
            Err(AssembleError::Length {
                hash: new.root,
                expected: len,
                found: 30_000
            })
        );
    }
    // A well-formed parent that is wrong about its child.
    let a = leaf(&mut store, b"aaa");
    let lie = Child { len: 4, ..a };
    let root = node(&mut store, &[a, lie]);
    let error = store.get(&root, 7).unwrap_err();
    assert!(matches!(
        error,
        AssembleError::Length { hash, expected: 4, found: 3 } if hash == a.hash
    ));
}

#[test]
fn malformed_nodes_are_refused() {
    let hash = Hash::of(b"child");
    let child = |len| Child { hash, len };
    let node = |lens: &[u64]| write_node(lens.iter().map(|&len| child(len)));
    let mut long_form = node(&[1, 1]);
    long_form.splice(33..34, [0x81, 0x00]);
    let mut endless = node(&[1, 1]);
    endless.splice(33..34, [0xff; 11]);
    let mut above = node(&[1, 1]);
    above.splice(33..34, [[0xff; 9].as_slice(), &[2]].concat());
    for (bytes, expected) in [
        (node(&[]), "two children or more"),
        (node(&[1]), "two children or more"),
        (node(&[1, 0]), "a child that is not empty"),
        (node(&[1; 33]), "the end after 32 children"),
        (node(&[u64::MAX, 1]), "a total below 2^64"),
        (node(&[1, 1])[..60].to_vec(), "a hash of 32 bytes"),
        (long_form, "a hash and a length in LEB128"),
        (endless, "a hash and a length in LEB128"),
        (above, "a hash and a length in LEB128"),
    ] {
        let Err(BadPiece::Node { expected: said, .. }) = children(&bytes) else {
            panic!("accepted, but should be {expected}");
        };
        assert_eq!(said, expected);
        assert!(check(&node_hash(&bytes[1..]), &bytes).is_err());
    }
    assert_eq!(
        children(&node(&[u64::MAX - 1, 1])).unwrap(),
        [child(u64::MAX - 1), child(1)]
    );
}

#[test]
fn other_malformed_pieces_are_refused() {
    let long = vec![0; LEAF_MAX_BYTES + 1];
    let raw = [&[1], &long[..]].concat();
    let zipped = write_leaf(&long);
    let mut short = write_leaf(&[7; 1000]);
    short[1..3].copy_from_slice(&1001_u16.to_le_bytes());
    for (bytes, begins) in [
        (vec![], "the piece is empty"),
        (vec![0, 1], "unknown kind of piece"),
        (vec![4, 1], "unknown kind of piece"),
        (vec![2], "the compressed leaf cannot be read"),
        (vec![2, 1, 0], "the compressed leaf has the wrong length"),
        (vec![2, 1, 0, 7], "the compressed leaf cannot be read"),
        (raw, "the leaf is too long"),
        (zipped, "the leaf is too long"),
        (short, "the compressed leaf has the wrong length"),
    ] {
        let error = children(&bytes).unwrap_err().to_string();
        assert!(error.starts_with(begins), "{error}");
        assert!(check(&Hash::ZERO, &bytes).is_err());
    }
}

/// A quarter of a gigabyte in a few kilobytes, declared as a leaf.
#[test]
fn a_bomb_is_not_unpacked() {
    let frame = zstd::bulk::compress(&vec![0; 1 << 28], 3).unwrap();
    for declared in [0, 1000, 4096_u16] {
        let bytes = [&[2], &declared.to_le_bytes()[..], &frame].concat();
        let error = children(&bytes).unwrap_err();
        assert!(matches!(error, BadPiece::Compression { .. }), "{error}");
    }
    // Many frames, one after the other.
    let frame = zstd::bulk::compress(&[0; 1000], 3).unwrap().repeat(1000);
    let bytes = [&[2], &1000_u16.to_le_bytes()[..], &frame].concat();
    assert!(children(&bytes).is_err());
}

/// The same children over and over: few pieces, but a payload without end.
#[test]
fn a_tree_that_multiplies_is_bounded_by_its_length() {
    let mut store = Store::default();
    let mut top = leaf(&mut store, b"1234");
    for _ in 0..8 {
        let hash = node(&mut store, &[top; 32]);
        top = Child {
            hash,
            len: top.len * 32,
        };
    }
    let mut fetched = 0;
    let mut get = |len| {
        assemble(&top.hash, len, 1 << 20, |hash| {
            fetched += 1;
            store.0.get(hash).ok_or("not there")
        })
    };
    assert!(matches!(get(top.len), Err(AssembleError::TooLong { .. })));
    assert!(matches!(get(1000), Err(AssembleError::Length { .. })));
    assert_eq!(fetched, 1);
}

#[test]
fn too_deep_is_refused() {
    let mut store = Store::default();
    let side = leaf(&mut store, b"a");
    let mut top = side;
    for depth in 1..=MAX_DEPTH + 1 {
        let hash = node(&mut store, &[top, side]);
        top = Child {
            hash,
            len: top.len + 1,
        };
        let back = store.get(&top.hash, top.len);
        if depth <= MAX_DEPTH {
            assert_eq!(back.unwrap(), vec![b'a'; depth + 1]);
        } else {
            assert!(matches!(back, Err(AssembleError::TooDeep { .. })));
        }
    }
}

/// A true cycle would need a node that names its own hash. A store that pretends to have one is
/// found out at the second piece.
#[test]
fn a_cycle_is_found_out() {
    let piece = &samples()[2];
    let mut fetched = 0;
    let error = assemble(&piece.hash, 70_300, 1 << 20, |_| {
        fetched += 1;
        Ok::<_, Infallible>(&piece.bytes)
    })
    .unwrap_err();
    assert!(matches!(
        error,
        AssembleError::Piece { bad: BadPiece::Hash { found, .. }, .. } if found == piece.hash
    ));
    assert_eq!(fetched, 2);
}
