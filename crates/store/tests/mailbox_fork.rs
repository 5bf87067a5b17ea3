//! A fork of a process that has an outbox cannot write over its letters.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;

use dalsegno_log::fs::RealFs;
use dalsegno_store::mailbox::{MailboxError, NewLetter, Outbox};
use dalsegno_store::{Kind, StreamId};

#[test]
fn a_fork_cannot_send_under_its_parents_name() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("mailbox-fork-{}", std::process::id()));
    let outbox = Outbox::open(Arc::new(RealFs), &dir).unwrap();
    let letter = NewLetter::new(StreamId::store(), Kind::SignalReceived, 0);
    outbox.send(letter.clone()).unwrap();
    // SAFETY: the child only uses what it has, and ends without running anything of the parent's.
    // No other thread of this process holds a lock that the child needs: the outbox is idle.
    let refused = unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let forked = matches!(outbox.send(letter), Err(MailboxError::Forked));
            libc::_exit(i32::from(!forked));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    };
    assert!(refused);
    assert_eq!(outbox.send(letter).unwrap().number, 2);
    std::fs::remove_dir_all(dir).unwrap();
}
