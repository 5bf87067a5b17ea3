//! The world outside, as a process: prints its address, and lives until its input ends.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use dalsegno_story::world::{Manner, World};

fn main() -> std::io::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let Some(ledger) = args.next() else {
        eprintln!("usage: story-world LEDGER-FILE [MILLISECONDS-OF-A-REPLY]");
        std::process::exit(2);
    };
    let pace = args.next().and_then(|ms| ms.to_str()?.parse().ok());
    let manner = Manner {
        pace: pace.map(Duration::from_millis),
        ..Manner::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    World::with(Path::new(&ledger), manner)?.serve(listener);
    // Who started it is gone when this ends, however it went.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
