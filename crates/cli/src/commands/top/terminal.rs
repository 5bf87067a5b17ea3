//! The terminal, taken and given back.
//!
//! Invariant: whatever ends the program (a key, a signal, an error, a panic in any thread) but a
//! SIGKILL, the terminal is as it was: main screen, cursor shown, cooked mode.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// Past the lock of the standard output, which the command's own output holds: a panic in another
/// thread must be able to write.
type Output = BufWriter<File>;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// A terminal of our own.
pub struct Screen {
    pub terminal: Terminal<CrosstermBackend<Output>>,
}

impl Screen {
    /// Takes the terminal.
    pub fn take() -> io::Result<Screen> {
        let mut output = output()?;
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        give_back_on_panic();
        // From here on dropping it gives the terminal back.
        let screen = Terminal::new(CrosstermBackend::new(BufWriter::new(output.try_clone()?)));
        let entered = execute!(output, EnterAlternateScreen);
        match (screen, entered) {
            (Ok(terminal), Ok(())) => Ok(Screen { terminal }),
            (Err(e), _) | (_, Err(e)) => {
                give_back();
                Err(e)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn output() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Once, whoever comes first.
fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    drop(disable_raw_mode());
    if let Ok(mut output) = output() {
        drop(execute!(output, LeaveAlternateScreen, Show));
        drop(output.flush());
    }
}

fn give_back_on_panic() {
    let then = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        then(panic);
    }));
}
