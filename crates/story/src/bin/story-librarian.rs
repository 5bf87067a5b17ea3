//! A process that executes the agents of a library until it is told to stop, or killed.
//!
//! `story-librarian STORE LEASE_MS`. It says `noted AGENT NUMBER ID` for each document that was
//! acknowledged.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use dalsegno::{Dalsegno, Error, Worker};
use dalsegno_story::library;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let lease_ms = |text: String| text.parse().ok();
    let (Some(store), Some(lease_ms)) = (args.next(), args.next().and_then(lease_ms)) else {
        eprintln!("story-librarian STORE LEASE_MS");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = runtime.map(|runtime| runtime.block_on(serve(store, lease_ms)));
    match done {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(e)) => {
            eprintln!("story-librarian: {e}");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("story-librarian: there is no runtime: {e}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(store: String, lease_ms: u64) -> Result<(), Error> {
    let builder = Dalsegno::builder()
        .max_running(1)
        .lease(Duration::from_millis(lease_ms));
    let app = library::register(builder, |agent, number, id| {
        // In one write, so that a kill cannot halve a line.
        let line = format!("noted {agent} {number} {id}\n");
        drop(std::io::stdout().lock().write_all(line.as_bytes()));
    });
    Worker::new(app.open(store).await?).run().await
}
