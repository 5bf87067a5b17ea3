//! Clocks that go backwards, and times that never come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dalsegno::testkit::SimRuntime;
use dalsegno::{BoxFuture, Builder, Ctx, Error, Gate, Runtime};
use dalsegno_simdisk::SimDisk;
use dalsegno_store::{Options, Store};

const HOUR_US: u64 = 3_600_000_000;

/// A machine whose clock can be set back.
#[derive(Clone, Debug)]
struct Wrong {
    time: SimRuntime,
    behind_us: Arc<AtomicU64>,
}

impl Wrong {
    fn behind(&self) -> u64 {
        self.behind_us.load(Ordering::SeqCst)
    }
}

impl Runtime for Wrong {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.time.spawn(task);
    }

    fn now_us(&self) -> u64 {
        self.time.now_us() - self.behind()
    }

    fn sleep_until(&self, us: u64) -> BoxFuture<'static, ()> {
        self.time.sleep_until(us + self.behind())
    }

    fn random(&self) -> u64 {
        self.time.random()
    }
}

#[test]
fn a_clock_that_goes_backwards() {
    let (disk, time) = (SimDisk::new(1), SimRuntime::new(1));
    let wrong = Wrong {
        time: time.clone(),
        behind_us: Arc::default(),
    };
    let agent = |ctx: Ctx, (): ()| async move {
        let mut times = Vec::new();
        for _ in 0..4 {
            times.push(ctx.now().await?);
            ctx.sleep(Duration::from_secs(60)).await?;
        }
        Ok(times)
    };
    let mut result = None;
    for life in 0..5 {
        let clock = wrong.clone();
        let options = Options::new().fs(Arc::new(disk.clone())).without_threads();
        let options = options.clock(move || clock.now_us());
        let store: Arc<dyn Store> = Arc::new(options.open("store").unwrap());
        let builder = Builder::new().agent("a", agent).without_mailbox();
        let builder = builder.runtime(Arc::new(wrong.clone()));
        let opening = async move {
            let app = builder.open_store(store).await?;
            app.start("a", "r", &()).await?;
            Ok::<_, Error>(app)
        };
        let app = time.complete(opening, &|| false).unwrap().unwrap();
        // The clock is set back by an hour in the middle of each life.
        wrong.behind_us.fetch_add(HOUR_US, Ordering::SeqCst);
        for _ in 0..200 {
            time.run(&|| false);
            if !time.advance() || time.now_us() > 1_790_000_000_000_000 {
                break;
            }
        }
        let look = app.clone();
        let journal = time.complete(async move { look.journal("r").await }, &|| false);
        if journal.unwrap().unwrap().status.is_final() {
            let ended = async move { app.find("r").await?.result::<Vec<u64>>().await };
            result = time.complete(ended, &|| false);
            break;
        }
        assert!(life < 4, "the sleeps never end");
        disk.power_off_now();
        time.kill();
        drop(app);
        disk.reboot(&mut dalsegno_simdisk::LoseAll);
    }
    let times = result.unwrap().unwrap();
    assert!(times.is_sorted(), "never back: {times:?}");
}

/// The clock is set back between the moment in which the run is told the time and the moment in which
/// that is recorded: what the run was told still counts for ever.
#[test]
fn what_the_run_was_told_counts_and_not_when_it_was_recorded() {
    let (disk, time) = (SimDisk::new(1), SimRuntime::new(1));
    let wrong = Wrong {
        time: time.clone(),
        behind_us: Arc::default(),
    };
    let agent = |ctx: Ctx, (): ()| async move {
        let first = ctx.now().await?;
        ctx.signal::<()>("go").await?;
        Ok((first, ctx.now().await?))
    };
    let open = || {
        // The store's clock is an hour behind: it was set back in between.
        let clock = time.clone();
        let options = Options::new().fs(Arc::new(disk.clone())).without_threads();
        let options = options.clock(move || clock.now_us() - HOUR_US);
        let store: Arc<dyn Store> = Arc::new(options.open("store").unwrap());
        let builder = Builder::new().agent("a", agent).without_mailbox();
        let builder = builder.runtime(Arc::new(wrong.clone()));
        let opening = async move {
            let app = builder.open_store(store).await?;
            app.start("a", "r", &()).await?;
            Ok::<_, Error>(app)
        };
        let app = time.complete(opening, &|| false).unwrap().unwrap();
        time.run(&|| false);
        app
    };
    let app = open();
    disk.power_off_now();
    time.kill();
    drop(app);
    disk.reboot(&mut dalsegno_simdisk::LoseAll);
    wrong.behind_us.store(HOUR_US, Ordering::SeqCst);
    let app = open();
    let ended = async move {
        app.signal("r", "go", &()).await?;
        app.find("r").await?.result::<(u64, u64)>().await
    };
    let (first, second) = time.complete(ended, &|| false).unwrap().unwrap();
    assert!(second >= first, "{second} after {first}");
}

#[test]
fn times_that_never_come_do_not_overflow() {
    let machine = super::machine::Machine::new();
    let builder = Builder::new().agent("a", |ctx: Ctx, _: String| async move {
        let read: u64 = ctx
            .tool("read")
            .read_only()
            .timeout(Duration::MAX)
            .call(|_| async { Ok(7) })
            .await?;
        let gate = Gate::new()
            .expires_in(Duration::MAX)
            .wait_at_most(Duration::MAX);
        let paid = ctx.tool("pay").approval(gate).timeout(Duration::MAX);
        let paid: u64 = paid.call(|_| async { Ok(1) }).await?;
        let came = ctx.signal::<u64>("go").timeout(Duration::MAX).await?;
        Ok(read + paid + came.unwrap_or(0))
    });
    let builder = builder.agent("sleeper", |ctx: Ctx, _: String| async move {
        ctx.sleep(Duration::MAX).await
    });
    let process = machine.start(builder);
    process.begin("a", "r", "");
    process.begin("sleeper", "s", "");
    process.approve("r", "pay#1").unwrap();
    let app = process.app.clone();
    process
        .now(async move { app.signal("r", "go", &4_u64).await })
        .unwrap();
    assert_eq!(process.end::<u64>("r").unwrap(), 12);
    assert!(!process.journal("s").status.is_final());
    let app = process.app.clone();
    process
        .now(async move { app.close_within(Duration::MAX).await })
        .unwrap();
}
