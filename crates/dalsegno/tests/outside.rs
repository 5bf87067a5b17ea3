//! Agents of other languages, whose code runs outside of the future of its run (`dalsegno::binding`).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use dalsegno::binding::{self, Outside};
use dalsegno::{Ctx, Dalsegno, Error, Result};
use dalsegno_simdisk::SimDisk;
use dalsegno_store::{LocalStore, Options, RunQuery, Status};

const LONG: Duration = Duration::from_secs(3600);

fn store(disk: &SimDisk) -> LocalStore {
    let options = Options::new().fs(Arc::new(disk.clone())).without_threads();
    options.open(std::path::Path::new("store")).unwrap()
}

/// What the code outside has said, and what it may be told.
#[derive(Clone, Default)]
struct Code {
    said: Arc<Mutex<Option<u64>>>,
    ctx: Arc<Mutex<Option<Ctx>>>,
}

impl Code {
    /// The future of a run that waits for an hour, while its code is at work elsewhere.
    async fn run(self, ctx: Ctx, at_work: bool) -> Result<u64> {
        *self.ctx.lock().unwrap() = Some(ctx.clone());
        let _outside = at_work.then(|| Outside::new(&ctx));
        let mut sleep = pin!(ctx.sleep(LONG));
        std::future::poll_fn(|context| {
            if let Some(said) = self.said.lock().unwrap().take() {
                return Poll::Ready(Ok(said));
            }
            sleep.as_mut().poll(context).map(|slept| slept.map(|()| 0))
        })
        .await
    }
}

async fn status(app: &Dalsegno) -> Status {
    let runs = app.runs(&RunQuery::default()).await.unwrap();
    runs[0].status
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_code_is_at_work_outside_is_not_idle() {
    for at_work in [true, false] {
        let (disk, code) = (SimDisk::new(1), Code::default());
        let given = code.clone();
        let agent = move |ctx, _: ()| given.clone().run(ctx, at_work);
        let builder = Dalsegno::builder().agent("a", agent);
        let app = builder.open_store(Arc::new(store(&disk))).await.unwrap();
        let run = app.start("a", "r", &()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let expected = match at_work {
            true => Status::Running,
            false => Status::Checkpointed,
        };
        assert_eq!(status(&app).await, expected);
        if at_work {
            *code.said.lock().unwrap() = Some(7);
            let ctx = code.ctx.lock().unwrap().clone().unwrap();
            binding::wake(&ctx);
            assert_eq!(run.result::<u64>().await.unwrap(), 7);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_interrupted_is_left_as_by_a_crash_and_goes_on() {
    let (disk, begun) = (SimDisk::new(1), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&begun);
    let agent = move |ctx: Ctx, _: ()| {
        let count = Arc::clone(&count);
        async move {
            let step = ctx.tool("work").idempotent();
            let work = step.call(|_| async {
                if count.fetch_add(1, Ordering::SeqCst) == 0 {
                    binding::interrupt(&ctx, "somebody pressed a key");
                    std::future::pending::<()>().await;
                }
                Ok(5_u64)
            });
            work.await
        }
    };
    let builder = Dalsegno::builder().agent("a", agent.clone());
    let first = store(&disk);
    let app = builder.open_store(Arc::new(first.clone())).await.unwrap();
    match app.run::<_, u64>("a", "r", &()).await {
        Err(Error::NeedsAttention { reason, .. }) => assert_eq!(reason, "somebody pressed a key"),
        other => panic!("{other:?}"),
    }
    assert_eq!(app.journal("r").await.unwrap().attention, None);
    app.close().await.unwrap();
    first.close().unwrap();
    let builder = Dalsegno::builder().agent("a", agent);
    let app = builder.open_store(Arc::new(store(&disk))).await.unwrap();
    let result: u64 = app.find("r").await.unwrap().result().await.unwrap();
    assert_eq!((result, begun.load(Ordering::SeqCst)), (5, 2));
}
