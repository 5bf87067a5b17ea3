//! A fork of the process that has a log open cannot harm it, and does not keep it locked.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dalsegno_log::{AppendError, Log, SyncError, may_block};

/// Runs `child` in a fork and says whether it returned true.
fn in_a_fork(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only uses what it has, and ends without running anything of the parent's.
    // No other thread of this process holds a lock that the child needs: the log is idle.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            libc::_exit(i32::from(!ok.unwrap_or(false)));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}

#[test]
fn a_fork_cannot_write_and_does_not_hold_the_lock() {
    let dir =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fork-{}", std::process::id()));
    let log = Log::open(&dir).unwrap();
    log.wait_durable(log.append(b"before").unwrap()).unwrap();

    let refused = in_a_fork(|| {
        let lsn = match log.append(b"from the fork") {
            Ok(lsn) => lsn,
            Err(e) => return matches!(e, AppendError::Poisoned(_)),
        };
        let mut durable = pin!(log.durable(lsn));
        let mut context = Context::from_waker(Waker::noop());
        let polled = may_block(Duration::MAX, || durable.as_mut().poll(&mut context));
        let refused = matches!(polled, Poll::Ready(Err(SyncError::Poisoned(_))))
            && matches!(log.wait_durable(lsn), Err(SyncError::Poisoned(_)));
        drop(log.clone());
        refused && log.close().is_err()
    });
    assert!(refused);

    // The parent goes on, and nothing of its own is gone.
    log.wait_durable(log.append(b"after").unwrap()).unwrap();
    assert_eq!(log.last_lsn(), 2);

    // A fork that lives on with the log open does not keep the folder locked.
    // SAFETY: as above; this child does nothing but wait to be killed.
    let sleeper = unsafe { libc::fork() };
    if sleeper == 0 {
        loop {
            // SAFETY: `pause` takes nothing and touches nothing.
            unsafe { libc::pause() };
        }
    }
    log.close().unwrap();
    let reopened = Log::open(&dir);
    // SAFETY: the child is ours, and nobody has waited for it yet.
    unsafe {
        libc::kill(sleeper, libc::SIGKILL);
        libc::waitpid(sleeper, std::ptr::null_mut(), 0);
    }
    assert_eq!(reopened.unwrap().recovery().last_lsn, 2);
    assert!(dalsegno_log::verify(&dir).unwrap().is_sound());
}
