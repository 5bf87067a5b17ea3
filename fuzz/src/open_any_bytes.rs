//! Opens a folder of any bytes in every way there is. Nothing may panic, and what one way says must
//! not contradict another.

#![no_main]

use dalsegno_fuzz::mem_fs::MemFs;
use dalsegno_fuzz::{DIR, decode, is_forged, options};
use dalsegno_log::{Log, OpenError, ReadError, Reader, Report, repair_on, verify_on};
use libfuzzer_sys::fuzz_target;

const BEYOND_REACH: &str = "numbers that a log can reach";

fuzz_target!(|input: &[u8]| {
    let fs = decode(input);
    let verified = verify_on(&fs, DIR.as_ref());
    view(&fs, &verified);
    repair(&fs.copy(), &verified, is_forged(input));
    write(&fs, &verified);
});

/// Reads to the end or to an error; the number of records.
fn read_all(mut reader: Reader) -> Result<u64, ReadError> {
    let (mut next, mut records) = (reader.next_lsn(), 0);
    while let Some(record) = reader.next_record()? {
        assert!(record.lsn >= next, "LSNs ascend");
        next = record.lsn + 1;
        records += 1;
    }
    Ok(records)
}

fn view(fs: &MemFs, verified: &Result<Report, OpenError>) {
    let read = options(fs).open_read_only(DIR).map(|view| {
        let read = view.read_from(view.first_lsn()).and_then(read_all);
        drop(view.refresh());
        read
    });
    let Ok(report) = verified else {
        assert!(read.is_err(), "readable, but verify says {verified:?}");
        return;
    };
    match read {
        Ok(Ok(records)) if report.is_sound() => assert_eq!(records, report.records),
        Ok(Ok(_)) => {}
        Ok(Err(e)) => assert!(!report.is_sound(), "sound, but reading says {e}"),
        Err(e) => assert!(!report.is_sound(), "sound, but opening says {e}"),
    }
}

/// What is repaired is sound and opens; what was sound is left as it was. Unless somebody made the
/// checksums right for frames that contradict each other: then it only must not panic.
fn repair(fs: &MemFs, verified: &Result<Report, OpenError>, forged: bool) {
    let report = match repair_on(fs, DIR.as_ref()) {
        Ok(report) => report,
        Err(OpenError::Unrepairable { why, .. }) => {
            let sound = verified.as_ref().is_ok_and(Report::is_sound);
            assert!(!sound, "sound, but it cannot be repaired: {why}");
            return;
        }
        Err(e) => {
            assert!(
                verified.is_err(),
                "it can be verified, but a repair says {e}"
            );
            return;
        }
    };
    if forged {
        return;
    }
    if verified.as_ref().is_ok_and(Report::is_sound) {
        assert_eq!(report.actions, []);
    }
    let again = match verify_on(fs, DIR.as_ref()) {
        // Only prepared segments were there, and damaged: nothing is lost with them.
        Err(OpenError::Missing { .. }) => return,
        again => again.expect("it can be verified"),
    };
    assert!(again.is_sound(), "repaired, but {:?}", again.damages);
    let log = options(fs).open(DIR).expect("what was repaired opens");
    drop(log.read_from(log.first_lsn()).and_then(read_all));
}

fn write(fs: &MemFs, verified: &Result<Report, OpenError>) {
    let log = match options(fs).open(DIR) {
        Ok(log) => log,
        Err(e) => {
            let sound = verified.as_ref().is_ok_and(Report::is_sound);
            assert!(!sound, "sound, but opening says {e}");
            return;
        }
    };
    drop(log.read_from(log.first_lsn()).and_then(read_all));
    append(log);
    let log = match options(fs).open(DIR) {
        // Forged numbers just below the highest that a log may go on from.
        Err(OpenError::Damage { damage, .. }) if damage.expected == BEYOND_REACH => return,
        opened => opened.expect("a log that was closed can be opened"),
    };
    let mut reader = log
        .read_from(log.last_lsn())
        .expect("the last record is there");
    let record = reader.next_record().expect("it can be read");
    assert_eq!(record.map(|record| record.payload), Some(&b"new"[..]));
    drop(log);
    if verified.as_ref().is_ok_and(Report::is_sound) {
        let report = verify_on(fs, DIR.as_ref()).expect("it can be verified");
        assert!(
            report.is_sound(),
            "sound before, and now: {:?}",
            report.damages
        );
    }
}

/// Some records, a new segment, some more.
fn append(log: Log) {
    let lsn = log.append(b"before").expect("there is room");
    log.wait_durable(lsn).expect("nothing fails here");
    log.seal().expect("nothing fails here");
    let lsns = log
        .append_batch(&[b"something", &b"new"[..]])
        .expect("there is room");
    log.wait_durable(*lsns.end()).expect("nothing fails here");
    log.close().expect("nothing fails here");
}
