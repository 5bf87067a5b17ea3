//! A power cut or a kill at every operation, in every outcome, and again in the recovery.

use std::path::Path;
use std::sync::Arc;

use dalsegno_sim::disk::{Chooser, Enumerate, KeepAll, LoseAll, SimDisk};
use dalsegno_store::mailbox::Inbox;

use crate::owner::{DIR, Events, Told, outbox, saying};

/// Two senders and an owner, until the end or the crash.
fn life(disk: &SimDisk, told: &mut Told, events: &mut Events) {
    let boxes = [outbox(disk.clone()), outbox(disk.clone())];
    let [Ok(a), Ok(b)] = boxes else { return };
    let Ok(inbox) = Inbox::open(Arc::new(disk.clone()), Path::new(DIR)) else {
        return;
    };
    for (word, outbox) in [&a, &b, &a, &a].into_iter().enumerate() {
        let word = word as u64;
        told.note(outbox, word, outbox.send(saying(word)));
        if word == 2 {
            let _crashed = events.take_up(&inbox, 2);
        }
    }
    let _crashed = events.take_up(&inbox, 3);
    told.note(&b, 9, b.send(saying(9)));
}

/// Runs a life that ends at operation `op`; none if it ended before.
fn crashed_life(op: u64) -> Option<(SimDisk, Told, Events)> {
    let disk = SimDisk::new(1);
    let (mut told, mut events) = (Told::default(), Events::default());
    disk.crash_at(op);
    life(&disk, &mut told, &mut events);
    disk.crashed().then_some((disk, told, events))
}

/// All that is taken up after a crash, itself crashed at every operation.
fn recover(disk: &SimDisk, told: &Told, events: &Events) {
    let mut op = disk.ops();
    loop {
        let machine = disk.snapshot();
        let mut events = events.clone();
        machine.crash_at(op);
        if let Ok(inbox) = Inbox::open(Arc::new(machine.clone()), Path::new(DIR)) {
            while let (1.., Ok(())) = events.take_up(&inbox, 2) {}
        }
        let crashed = machine.crashed();
        let choosers: [&mut dyn Chooser; 2] = [&mut LoseAll, &mut KeepAll];
        for chooser in choosers {
            let (machine, mut events) = (machine.snapshot(), events.clone());
            machine.reboot(chooser);
            events.take_up_all(&machine);
            events.check_all(told);
        }
        if !crashed {
            return;
        }
        op += 1;
    }
}

#[test]
fn acknowledged_letters_survive_every_power_cut_and_happen_once() {
    let (mut op, mut outcomes) = (0, 0);
    while let Some((disk, told, events)) = crashed_life(op) {
        let mut choices = Enumerate::new(100_000);
        loop {
            let machine = disk.snapshot();
            machine.reboot(&mut choices);
            recover(&machine, &told, &events);
            if !choices.next_combination() {
                break;
            }
        }
        assert!(choices.exhausted());
        outcomes += choices.seen();
        op += 1;
    }
    assert!(
        op > 40 && outcomes > 100,
        "{op} operations, {outcomes} outcomes"
    );
}

#[test]
fn a_kill_is_no_worse_even_if_the_power_goes_later() {
    let mut op = 0;
    while let Some((disk, told, mut events)) = crashed_life(op) {
        disk.restart_process();
        // What the killed sender left is visible, and perhaps not durable.
        let inbox = Inbox::open(Arc::new(disk.clone()), Path::new(DIR)).unwrap();
        let (_, result) = events.take_up(&inbox, 2);
        result.unwrap();
        recover(&disk, &told, &events);
        disk.reboot(&mut LoseAll);
        recover(&disk, &told, &events);
        op += 1;
    }
    assert!(op > 40);
}

#[test]
fn letters_wait_while_no_owner_runs() {
    let disk = SimDisk::new(3);
    let (mut told, mut events) = (Told::default(), Events::default());
    for word in 0..5 {
        let outbox = outbox(disk.clone()).unwrap();
        assert!(told.note(&outbox, word, outbox.send(saying(word))));
        disk.reboot(&mut LoseAll);
    }
    events.take_up_all(&disk);
    events.check_all(&told);
}
