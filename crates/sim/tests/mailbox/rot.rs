//! Letters whose bytes are not what was sent: named, kept, and in nobody's way.

use std::path::Path;
use std::sync::Arc;

use dalsegno_sim::disk::{LoseAll, SimDisk};
use dalsegno_store::mailbox::{Arrived, Inbox, LETTER_LIMIT_BYTES, MailboxError};

use crate::owner::{DIR, outbox, saying};

fn inbox(disk: &SimDisk) -> Inbox {
    Inbox::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap()
}

/// The numbers of the letters, and the files that are bad.
fn sorted(arrived: Vec<Arrived>) -> (Vec<u64>, Vec<String>) {
    let (mut letters, mut bad) = (Vec::new(), Vec::new());
    for arrived in arrived {
        match arrived {
            Arrived::Letter(letter) => letters.push(letter.number),
            Arrived::Bad { file, reason } => {
                assert!(!reason.is_empty());
                bad.push(file);
            }
            other => panic!("{other:?}"),
        }
    }
    (letters, bad)
}

#[test]
fn every_flipped_bit_is_named_and_the_letter_is_kept() {
    let disk = SimDisk::new(1);
    let outbox = outbox(disk.clone()).unwrap();
    let sent: Vec<_> = (0..3).map(|w| outbox.send(saying(w)).unwrap()).collect();
    let file = disk.files(DIR)[1].clone();
    let path = format!("{DIR}/{file}");
    for at in 0..disk.file_len(&path).unwrap() {
        for bit in 0..8 {
            let disk = disk.snapshot();
            disk.flip_bit(&path, at, bit).unwrap();
            let bytes = disk.read_file(&path).unwrap();
            let inbox = inbox(&disk);
            // Also if its successors have been taken: it is no leftover that may be removed.
            for taken in [0, 3] {
                let found = sorted(inbox.pending(&|_| taken, 10).unwrap());
                let letters = if taken == 0 { vec![1, 3] } else { vec![] };
                assert_eq!(found, (letters, vec![file.clone()]));
            }
            inbox.set_aside(&file).unwrap();
            disk.reboot(&mut LoseAll);
            assert_eq!(disk.read_file(format!("{path}.bad")).unwrap(), bytes);
            assert!(sorted(inbox.pending(&|_| 3, 10).unwrap()).1.is_empty());
        }
    }
    // A sender can see what became of it.
    inbox(&disk).set_aside(&file).unwrap();
    assert!(!outbox.is_taken(&sent[0]).unwrap());
    let asked = outbox.is_taken(&sent[1]);
    assert!(
        matches!(asked, Err(MailboxError::SetAside { .. })),
        "{asked:?}"
    );
}

#[test]
fn files_of_every_length_and_none_of_them_a_letter() {
    let disk = SimDisk::new(1);
    let name = |n: u64| format!("{DIR}/{:016x}-{n:016}.letter", 0xabc);
    let whole = {
        let outbox = outbox(disk.clone()).unwrap();
        outbox.send(saying(1)).unwrap();
        disk.read_file(format!("{DIR}/{}", disk.files(DIR)[0]))
            .unwrap()
    };
    for n in 1..whole.len() as u64 {
        disk.write_raw(name(n), &whole[..n as usize]).unwrap();
    }
    // A whole letter, but under another's name.
    disk.write_raw(name(whole.len() as u64), &whole).unwrap();
    let (letters, bad) = sorted(inbox(&disk).pending(&|_| 0, 1000).unwrap());
    assert_eq!((letters.len(), bad.len()), (1, whole.len()));
}

#[test]
fn a_file_too_large_for_a_letter_is_not_read() {
    let disk = SimDisk::new(1);
    let inbox = inbox(&disk);
    let path = format!("{DIR}/{:016x}-{:016}.letter", 1, 1);
    disk.write_raw(&path, &vec![0; LETTER_LIMIT_BYTES as usize + 1])
        .unwrap();
    let (letters, bad) = sorted(inbox.pending(&|_| 0, 10).unwrap());
    assert_eq!((letters.len(), bad.len()), (0, 1));
}

#[test]
fn nothing_set_aside_is_ever_replaced() {
    let disk = SimDisk::new(1);
    let inbox = inbox(&disk);
    let file = format!("{:016x}-{:016}.letter", 1, 1);
    for content in [b"one", b"two", b"six"] {
        disk.write_raw(format!("{DIR}/{file}"), content).unwrap();
        inbox.set_aside(&file).unwrap();
    }
    assert_eq!(disk.files(DIR).len(), 3);
    for other in ["lock", "../log/0000000000000001.seg", ""] {
        let refused = inbox.set_aside(other);
        assert!(
            matches!(refused, Err(MailboxError::NoLetter(_))),
            "{refused:?}"
        );
    }
}
