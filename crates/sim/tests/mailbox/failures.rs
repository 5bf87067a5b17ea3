//! Operations that fail: nobody is told that a letter was sent if it was not.

use std::path::Path;
use std::sync::Arc;

use dalsegno_sim::disk::{Faults, LoseAll, OpKind, Random, SimDisk, errno};
use dalsegno_sim::rng::Rng;
use dalsegno_store::mailbox::{Inbox, MailboxError, Outbox};

use crate::owner::{DIR, Events, Told, outbox, saying};

/// Sends until the letter is acknowledged or in doubt; what was not sent is sent again with
/// another word, under the same number.
fn send(disk: &SimDisk, sender: &mut Option<Outbox>, told: &mut Told, word: &mut u64) {
    for _ in 0..20 {
        let Some(outbox) = sender else {
            *sender = outbox(disk.clone()).ok();
            continue;
        };
        *word += 1;
        let said = outbox.send(saying(*word));
        let stopped = matches!(said, Err(MailboxError::Unknown { .. }));
        let sent = told.note(outbox, *word, said);
        if stopped {
            let after = outbox.send(saying(0));
            assert!(matches!(after, Err(MailboxError::Stopped(_))), "{after:?}");
            *sender = None;
        }
        if sent || stopped {
            return;
        }
    }
}

fn look(disk: &SimDisk, events: &mut Events, limit: usize) {
    if let Ok(inbox) = Inbox::open(Arc::new(disk.clone()), Path::new(DIR)) {
        let _harmless = events.take_up(&inbox, limit);
    }
}

#[test]
fn each_operation_may_fail_once() {
    use OpKind::{CreateDir, Len, List, Open, Read, Remove, Rename, Sync, SyncDir, Write};
    for kind in [
        CreateDir, Len, List, Open, Read, Remove, Rename, Sync, SyncDir, Write,
    ] {
        for nth in 0..20 {
            for number in [errno::EIO, errno::ENOSPC, errno::EMFILE, errno::EINTR] {
                let disk = SimDisk::new(nth);
                let (mut told, mut events) = (Told::default(), Events::default());
                let (mut sender, mut word) = (None, 0);
                disk.fail_nth(kind, nth, number);
                for turn in 0..6 {
                    send(&disk, &mut sender, &mut told, &mut word);
                    if turn % 2 == 1 {
                        look(&disk, &mut events, 4);
                    }
                }
                // A single failure stops at most one outbox, at one letter.
                assert!(told.in_doubt.len() <= 1);
                events.check(&told);
                disk.heal();
                disk.reboot(&mut LoseAll);
                events.take_up_all(&disk);
                events.check_all(&told);
            }
        }
    }
}

#[test]
fn a_full_disk_refuses_a_letter_and_not_the_ones_after_it() {
    let disk = SimDisk::new(1);
    let outbox = outbox(disk.clone()).unwrap();
    outbox.send(saying(1)).unwrap();
    disk.set_capacity(Some(disk.used()));
    let refused = outbox.send(saying(2)).unwrap_err();
    assert!(matches!(refused, MailboxError::NotSent(_)), "{refused}");
    assert!(
        refused.to_string().contains("nothing was sent"),
        "{refused}"
    );
    disk.set_capacity(None);
    assert_eq!(outbox.send(saying(3)).unwrap().number, 2);
    assert_eq!(disk.files(DIR).len(), 2);
}

#[test]
fn a_letter_that_cannot_be_read_holds_back_its_sender_only() {
    let disk = SimDisk::new(1);
    let (mut told, mut events) = (Told::default(), Events::default());
    let mut boxes = [outbox(disk.clone()).unwrap(), outbox(disk.clone()).unwrap()];
    boxes.sort_by(|a, b| a.sender().cmp(b.sender()));
    for word in 0..6 {
        let outbox = &boxes[word as usize % 2];
        told.note(outbox, word, outbox.send(saying(word)));
    }
    let inbox = Inbox::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
    // The second letter of the first sender.
    disk.fail_nth(OpKind::Read, 1, errno::EIO);
    let (taken, result) = events.take_up(&inbox, 10);
    result.unwrap();
    assert_eq!(taken, 4);
    events.check(&told);
    assert_eq!(events.take_up(&inbox, 10).0, 2);
    events.check_all(&told);
}

#[test]
fn lives_of_chance() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(seed);
        let (mut told, mut events) = (Told::default(), Events::default());
        let (mut senders, mut word) = ([None, None, None], 0);
        for _ in 0..rng.range(1, 4) {
            let often = [0, 20, 100][rng.index(3)];
            disk.set_faults(Faults {
                open_eio: often,
                open_emfile: often,
                rename_eio: often,
                remove_eio: often,
                sync_dir_eio: often,
                read_eio: often,
                read_short: often,
                write_eio: often,
                write_short: often,
                sync_eio: often,
                ..Faults::default()
            });
            disk.crash_at(disk.ops() + rng.range(5, 300));
            while !disk.crashed() {
                let sender = &mut senders[rng.index(3)];
                match rng.below(5) {
                    0 => look(&disk, &mut events, 1 + rng.index(4)),
                    1 => *sender = None,
                    _ => send(&disk, sender, &mut told, &mut word),
                }
            }
            senders = [None, None, None];
            match rng.below(3) {
                0 => disk.restart_process(),
                _ => disk.reboot(&mut Random::new(rng.fork())),
            }
            events.check(&told);
        }
        disk.heal();
        events.take_up_all(&disk);
        events.check_all(&told);
    }
}
