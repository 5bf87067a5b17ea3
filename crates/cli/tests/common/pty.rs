//! A terminal of a test's own: a real pty with a program in it, and what its screen shows.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};

/// Nothing takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    output: Receiver<Vec<u8>>,
    parser: vt100::Parser,
}

impl Terminal {
    /// Runs a script of the shell, in which `$0` is the first argument, on so many rows and columns.
    pub fn run(script: &str, args: &[&str], size: (u16, u16)) -> Terminal {
        let (pty, pts) = open().unwrap();
        pty.resize(Size::new(size.0, size.1)).unwrap();
        let child = Command::new("sh")
            .args(["-c", script])
            .args(args)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .env_remove("DALSEGNO_STORE")
            .spawn(pts)
            .unwrap();
        let pty = Arc::new(pty);
        let (sender, output) = channel();
        let reader = Arc::clone(&pty);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // An error is the end: the other side is closed.
            while let Ok(count @ 1..) = (&*reader).read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal {
            pty,
            child,
            output,
            parser: vt100::Parser::new(number(size.0), number(size.1), 0),
        }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// Makes it another size.
    pub fn resize(&mut self, size: (u16, u16)) {
        let (rows, columns) = (number(size.0), number(size.1));
        self.parser.screen_mut().set_size(rows, columns);
        self.pty.resize(Size::new(size.0, size.1)).unwrap();
    }

    pub fn screen(&self) -> &vt100::Screen {
        self.parser.screen()
    }

    /// Waits until something is on the screen.
    #[track_caller]
    pub fn sees(&mut self, text: &str) {
        self.waits(text, |screen| screen.contents().contains(text));
    }

    /// Waits until something is on the screen no more.
    #[track_caller]
    pub fn sees_no_more(&mut self, text: &str) {
        self.waits(text, |screen| !screen.contents().contains(text));
    }

    #[track_caller]
    fn waits(&mut self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(self.parser.screen()) {
            let left = until.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.parser.process(&bytes),
                Err(e) => {
                    let ended = matches!(e, RecvTimeoutError::Disconnected);
                    let contents = self.parser.screen().contents();
                    panic!("waited for {what:?}; ended: {ended}; the screen:\n{contents}");
                }
            }
        }
    }

    /// Waits for its end; the code, and what is on the screen.
    pub fn ends(mut self) -> (Option<i32>, String) {
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.parser.process(&bytes);
        }
        let screen = self.parser.screen();
        assert!(!screen.alternate_screen(), "the main screen is back");
        assert!(!screen.hide_cursor(), "the cursor is back");
        let contents = screen.contents();
        (self.child.wait().unwrap().code(), contents)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn number(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap()
}
