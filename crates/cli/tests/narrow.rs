//! Tables on a narrow terminal: no row is broken by the edge.

#![cfg(feature = "top")]
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "common/pty.rs"]
mod pty;

use common::{TempDir, dalsegno, names, stores};
use pty::Terminal;

#[test]
fn no_row_is_broken_by_the_edge() {
    let dir = TempDir::new();
    stores::every_state(dir.path());
    let document = dalsegno(dir.path(), ["ls", "--json"]).ok().json();
    let show = format!("show {}", names(&document)[0]);
    let args = [env!("CARGO_BIN_EXE_dalsegno"), dir.path().to_str().unwrap()];
    for (command, heading) in [("ls", "RUN"), (&show, "STEP")] {
        for columns in [40, 20] {
            let script = format!("\"$0\" --store \"$1\" {command}; echo; echo done");
            let mut terminal = Terminal::run(&script, &args, (100, columns));
            terminal.sees("done");
            let screen = terminal.screen();
            let rows: Vec<_> = screen.rows(0, columns).collect();
            let from = rows.iter().position(|row| row.starts_with(heading));
            let from = from.unwrap();
            let until = (from..).find(|row| rows[*row].is_empty()).unwrap();
            assert!(until > from + 1, "{}", rows.join("\n"));
            let broken = (from..until).find(|row| screen.row_wrapped(*row as u16));
            assert_eq!(broken, None, "{command}:\n{}", rows.join("\n"));
        }
    }
}
