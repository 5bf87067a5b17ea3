//! What a crash does to the content and the length of a file.

use super::*;
use crate::rng::Rng;

#[test]
fn unsynced_sectors_are_lost_kept_torn_and_reordered() {
    let disk = disk(1);
    let a = file(&disk, &sectors("aaa"));
    a.write_full(&sectors("bc"), 0).unwrap();
    a.write_full(&sectors("d"), 2 * 512).unwrap();
    assert_eq!(seen(&disk), "bcd");
    assert_eq!(
        disk.unsynced(),
        Unsynced {
            sectors: 3,
            ..Unsynced::default()
        }
    );
    assert_eq!(seen(&survivor(&disk, &mut LoseAll)), "aaa");
    assert_eq!(seen(&survivor(&disk, &mut KeepAll)), "bcd");
    let states = every_crash(&disk, seen);
    // "aca" is a torn write; "aad" has the second write without the first.
    assert_eq!(
        keys(&states),
        ["aaa", "aad", "aca", "acd", "baa", "bad", "bca", "bcd"]
    );
    assert!(
        states.values().all(|n| *n == 1),
        "each combination exactly once"
    );
}

#[test]
fn every_version_since_the_sync_may_be_the_one() {
    let disk = disk(1);
    let a = file(&disk, &sectors("a"));
    for letter in ["b", "c", "b", "d"] {
        a.write_full(&sectors(letter), 0).unwrap();
    }
    assert_eq!(keys(&every_crash(&disk, seen)), ["a", "b", "c", "d"]);
    a.sync().unwrap();
    assert_eq!(keys(&every_crash(&disk, seen)), ["d"]);
}

#[test]
fn synced_content_and_length_survive() {
    let disk = disk(1);
    let a = file(&disk, b"");
    a.write_full(&sectors("abc"), 0).unwrap();
    a.sync().unwrap();
    assert_eq!(disk.unsynced(), Unsynced::default());
    assert_eq!(seen(&survivor(&disk, &mut LoseAll)), "abc");
}

#[test]
fn a_part_of_a_sector_is_written_with_the_rest_of_it() {
    let disk = disk(1);
    let a = file(&disk, &sectors("a"));
    a.write_full(b"xyz", 100).unwrap();
    a.write_full(b"uvw", 200).unwrap();
    let states = every_crash(&disk, |d| {
        let bytes = d.read_file("d/a").unwrap();
        format!("{}{}", char::from(bytes[100]), char::from(bytes[200]))
    });
    // Never "au": the version with the second part has the first part too.
    assert_eq!(keys(&states), ["aa", "xa", "xu"]);
}

#[test]
fn growth_is_kept_at_any_length_and_missing_data_is_zero() {
    let disk = disk(1);
    let a = file(&disk, &sectors("a"));
    a.write_full(&sectors("b"), 512).unwrap();
    a.write_full(&sectors("c"), 1024).unwrap();
    let states = every_crash(&disk, seen);
    assert_eq!(keys(&states), ["a", "a_", "a__", "a_c", "ab", "ab_", "abc"]);
    assert!(states.values().all(|n| *n == 1));
}

#[test]
fn truncation_may_be_lost_and_what_it_cut_never_comes_back_by_growth() {
    let disk = disk(1);
    let a = file(&disk, &sectors("abc"));
    a.truncate(700).unwrap();
    assert_eq!(a.len().unwrap(), 700);
    assert_eq!(seen(&survivor(&disk, &mut LoseAll)), "abc");
    a.write_full(&sectors("d"), 1024).unwrap();
    a.sync().unwrap();
    let bytes = survivor(&disk, &mut LoseAll).read_file("d/a").unwrap();
    assert_eq!(bytes[..700], sectors("ab")[..700]);
    assert!(bytes[700..1024].iter().all(|b| *b == 0));
    assert_eq!(letters(&bytes[1024..]), "d");
}

#[test]
fn a_length_kept_short_cuts_the_sector_for_good() {
    let disk = disk(1);
    let a = file(&disk, b"");
    a.write_full(&[b'a'; 100], 0).unwrap();
    a.write_full(&[b'b'; 100], 100).unwrap();
    // Length 100, but the sector's newest version.
    let after = survivor(&disk, &mut Scripted(vec![1, 2]));
    assert_eq!(after.read_file("d/a").unwrap(), [b'a'; 100]);
    open(&after, "a").truncate(200).unwrap();
    assert!(
        after.read_file("d/a").unwrap()[100..]
            .iter()
            .all(|b| *b == 0)
    );
}

#[test]
fn zeros_cost_nothing_and_leave_only_the_length_to_choose() {
    let disk = disk(1);
    let a = file(&disk, b"");
    a.write_full(&vec![0; 1 << 20], 0).unwrap();
    assert_eq!(
        disk.unsynced(),
        Unsynced {
            lengths: 1,
            ..Unsynced::default()
        }
    );
    assert_eq!(disk.outcomes(), 2);
    a.sync().unwrap();
    assert_eq!(
        survivor(&disk, &mut LoseAll).file_len("d/a").unwrap(),
        1 << 20
    );
}

#[test]
fn reads_end_at_the_end_and_holes_are_zero() {
    let disk = disk(1);
    let a = file(&disk, b"abc");
    a.write_full(b"z", 2000).unwrap();
    let mut buf = [9; 3000];
    assert_eq!(a.read_full(&mut buf, 1).unwrap(), 2000);
    assert_eq!(&buf[..3], b"bc\0");
    assert_eq!(buf[1999], b'z');
    assert_eq!(buf[2000], 9);
    assert_eq!(a.read_at(&mut buf, 2001).unwrap(), 0);
    assert_eq!(a.read_at(&mut buf, 9999).unwrap(), 0);
}

#[test]
fn a_flipped_bit_is_on_the_platter_and_in_the_cache() {
    let disk = disk(1);
    let a = file(&disk, b"abc");
    disk.flip_bit("d/a", 1, 0).unwrap();
    let mut buf = [0; 3];
    a.read_full(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"acc");
    assert_eq!(
        survivor(&disk, &mut LoseAll).read_file("d/a").unwrap(),
        b"acc"
    );
    assert_errno(disk.flip_bit("d/a", 3, 0), errno::EINVAL);
    assert_errno(disk.flip_bit("d/b", 0, 0), errno::ENOENT);
}

#[test]
fn random_crashes_reach_every_state() {
    let disk = disk(1);
    let a = file(&disk, &sectors("aaaa"));
    a.write_full(&sectors("bbbb"), 0).unwrap();
    let mut random = Random::new(Rng::new(7));
    let mut states = BTreeMap::<String, u64>::new();
    for _ in 0..1000 {
        *states
            .entry(seen(&survivor(&disk, &mut random)))
            .or_default() += 1;
    }
    assert_eq!(states.len(), 16);
    // The extremes come often, which fair coins would not give.
    assert!(states["aaaa"] > 150 && states["bbbb"] > 150, "{states:?}");
}

#[test]
fn enumeration_stops_at_its_limit_and_says_so() {
    let disk = disk(1);
    let a = file(&disk, &sectors("aaaa"));
    a.write_full(&sectors("bbbb"), 0).unwrap();
    let mut every = Enumerate::new(10);
    let mut rounds = 0;
    loop {
        survivor(&disk, &mut every);
        rounds += 1;
        if !every.next_combination() {
            break;
        }
    }
    assert_eq!((rounds, every.seen(), every.exhausted()), (10, 10, false));
    assert_eq!(disk.outcomes(), 16);
}

/// Gives these answers, in this order.
struct Scripted(Vec<usize>);

impl Chooser for Scripted {
    fn choose(&mut self, n: usize) -> usize {
        let answer = self.0.remove(0);
        assert!(answer < n);
        answer
    }
}

#[test]
fn without_faults_it_is_a_plain_file_and_a_sync_saves_all_of_it() {
    for seed in 0..50 {
        let disk = disk(seed);
        let a = file(&disk, b"");
        let mut rng = Rng::new(seed);
        let mut model = Vec::new();
        for _ in 0..60 {
            let at = rng.index(3000);
            if rng.chance(250) {
                a.truncate(at as u64).unwrap();
                model.resize(at, 0);
            } else {
                let size = rng.index(1500);
                let bytes = rng.bytes(size);
                a.write_full(&bytes, at as u64).unwrap();
                if size > 0 {
                    model.resize(model.len().max(at + size), 0);
                }
                if let Some(part) = model.get_mut(at..at + size) {
                    part.copy_from_slice(&bytes);
                }
            }
            assert!(disk.read_file("d/a").unwrap() == model, "seed {seed}");
            if rng.chance(200) {
                a.sync().unwrap();
                let after = survivor(&disk, &mut LoseAll);
                assert!(after.read_file("d/a").unwrap() == model, "seed {seed}");
            }
        }
    }
}
