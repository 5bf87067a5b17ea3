//! Runs benchmark groups. `cargo run --release -p dalsegno-bench -- log`.
fn main() {}
