//! Counts to thirty, durably. Kill it at any moment and run it again: it goes on from the mark.
//!
//! `cargo run --release -p dalsegno-log --example resume [FOLDER]`

use std::error::Error;
use std::time::Duration;

use dalsegno_log::Log;

const GOAL: u32 = 30;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "target/resume.log".into());
    let log = Log::open(&folder)?;

    let mut count: u32 = 0;
    let mut reader = log.read_from(log.first_lsn())?;
    while let Some(record) = reader.next_record()? {
        count = std::str::from_utf8(record.payload)?.parse()?;
    }
    let recovery = log.recovery();
    match (count, recovery.clean) {
        (0, _) => println!("a new count in {folder}; kill me and run me again"),
        (_, true) => println!("closed in good order at {count}"),
        (_, false) => println!("crashed after {count} was durable: going on from there"),
    }
    if let Some(torn) = &recovery.torn {
        println!("the crash left {} unfinished bytes, cut off", torn.bytes);
    }

    while count < GOAL {
        count += 1;
        let lsn = log.append(count.to_string())?;
        log.wait_durable(lsn)?;
        println!("{count}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let times = log.sync_times();
    log.close()?;
    println!(
        "done: {GOAL}. {} syncs in this process, the slowest took {:.1?}",
        times.syncs, times.slowest
    );
    Ok(())
}
