//! The world outside, as a process: prints its address, and lives until its input ends.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;

use dalsegno_story::world::World;

fn main() -> std::io::Result<()> {
    let Some(ledger) = std::env::args_os().nth(1) else {
        eprintln!("usage: story-world LEDGER-FILE");
        std::process::exit(2);
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    World::new(Path::new(&ledger))?.serve(listener);
    // Who started it is gone when this ends, however it went.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
