//! `dalsegno top`: the runs live in the terminal, and answers from the keyboard.
//!
//! ```text
//! keys (a thread) ─┐
//! store changed   ─┼─► the loop: app.rs decides, view.rs draws
//! signals, orders ─┘       │
//!                          └─► data.rs reads, orders.rs says, through `dalsegno::Remote`
//! ```
//!
//! Invariants: nothing is read or drawn while nothing happens, but for the ages; reading takes at most a tenth of the time,
//! however large the store is; what cannot be read now is shown as such and tried again.

use std::io::IsTerminal;
use std::time::Duration;

use crossterm::event::{Event, KeyEventKind};
use dalsegno::Remote;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior, sleep_until};

use crate::args::Global;
use crate::args::top::Top;
use crate::exit::{Error, Exit, Result};
use crate::output::text::shown;
use crate::output::{Out, time};
use crate::{address, left_behind, open, runtime};

mod app;
mod data;
mod dialog;
mod orders;
mod terminal;
mod view;

use app::{Action, App, Given, Wish};
use dialog::{Dialog, Input, Kind};
use orders::{Fate, News};
use terminal::Screen;

/// How often it is looked for news. The store's own waiting looks ten times as often, which no person
/// sees and every battery does.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Ages change this often.
const TICK: Duration = Duration::from_secs(1);
/// The list is not read more often than this.
const READ_EVERY_AT_MOST: Duration = Duration::from_millis(100);
/// What takes less may be read again just for the ages in it.
const CHEAP: Duration = Duration::from_millis(5);
/// An age of less changes with every tick, one of more seldom enough.
const YOUNG_US: u64 = 60_000_000;
const TICKS_IF_OLD: u64 = 15;
/// A dialog takes no keys for so long: they were typed before it could be seen.
const ARM_AFTER: Duration = Duration::from_millis(200);
/// Of so many orders it is remembered what became of them.
const REMEMBERED: usize = 100;

/// Shows the runs until the user leaves.
///
/// # Errors
/// There is no terminal, or no store.
pub fn run(args: &Top, global: &Global, out: &mut Out) -> Result<Exit> {
    if out.is_json() {
        return Err(Error::usage("top is for people and has no JSON").hint(
            "`dalsegno tail --json` follows what happens, `dalsegno ls --json` lists the runs",
        ));
    }
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Error::usage("top needs a terminal to show and to be told")
            .hint("`dalsegno ls` lists the runs, `dalsegno tail` follows them, also in a pipe"));
    }
    runtime::block_on(async {
        let remote = open::remote(global)?;
        let mut top = Watching::new(args, global, remote, out.colors());
        let mut screen = Screen::take().map_err(no_screen)?;
        if args.panic {
            break_down();
        }
        let done = top.watch(&mut screen).await;
        drop(screen);
        done.map(|()| Exit::Done)
    })
}

fn no_screen(error: std::io::Error) -> Error {
    Error::failed(format!("cannot draw on the terminal: {error}"))
}

/// For tests: a fault where the terminal is hardest to give back, in another thread.
#[allow(clippy::panic)]
fn break_down() {
    drop(std::thread::spawn(|| panic!("for a test")).join());
}

struct Watching<'a> {
    global: &'a Global,
    by: String,
    remote: Remote,
    app: App,
    /// Up to where the store was read.
    position: u64,
    /// Something is new since.
    list_is_old: bool,
    detail_is_old: bool,
    /// Not before this.
    read_next: Instant,
    /// How long the last reading took.
    took: Duration,
    ticks: u64,
    /// When the dialog takes keys.
    arm_at: Option<Instant>,
    news: UnboundedSender<News>,
    heard: UnboundedReceiver<News>,
    numbers: u64,
}

impl<'a> Watching<'a> {
    fn new(args: &Top, global: &'a Global, remote: Remote, color: bool) -> Watching<'a> {
        let (news, heard) = unbounded_channel();
        let store = address::named(&global.store);
        Watching {
            global,
            by: args.by.clone(),
            remote,
            app: App::new(store, args.filter.clone(), color),
            position: 0,
            list_is_old: true,
            detail_is_old: true,
            read_next: Instant::now(),
            took: Duration::ZERO,
            ticks: 0,
            arm_at: None,
            news,
            heard,
            numbers: 0,
        }
    }

    async fn watch(&mut self, screen: &mut Screen) -> Result<()> {
        let watch = |kind| signal(kind).map_err(no_screen);
        let mut terminate = watch(SignalKind::terminate())?;
        let mut interrupt = watch(SignalKind::interrupt())?;
        let mut hangup = watch(SignalKind::hangup())?;
        let mut keys = keys();
        let mut tick = tokio::time::interval(TICK);
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.look_around();
        self.read().await;
        let mut is_drawn = false;
        loop {
            if !is_drawn {
                self.app.now_us = time::now_us();
                let app = &mut self.app;
                let drawn = screen.terminal.draw(|frame| view::draw(frame, app));
                drawn.map_err(no_screen)?;
            }
            is_drawn = false;
            let is_old = self.list_is_old || self.detail_is_old;
            tokio::select! {
                key = keys.recv() => match key {
                    Some(Ok(event)) => if self.take(event).await {
                        return Ok(());
                    },
                    // The terminal is gone.
                    Some(Err(e)) => return Err(no_screen(e)),
                    None => return Ok(()),
                },
                _ = look.tick(), if !self.list_is_old => is_drawn = self.look().await,
                () = sleep_until(self.arm_at.unwrap_or(self.read_next)), if self.arm_at.is_some() => {
                    self.arm_at = None;
                    if let Some(dialog) = &mut self.app.dialog {
                        dialog.armed = true;
                    }
                },
                () = sleep_until(self.read_next), if is_old => self.read().await,
                Some(news) = self.heard.recv() => self.note(news),
                _ = tick.tick() => self.look_around(),
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                _ = hangup.recv() => return Ok(()),
            }
        }
    }

    /// Looks for news, and says whether the screen can stay as it is.
    async fn look(&mut self) -> bool {
        match self.remote.store().position().await {
            Ok(position) => {
                self.list_is_old = position > self.position;
                true
            }
            Err(e) => {
                self.app.trouble = Some(Error::from(e).what);
                false
            }
        }
    }

    /// Reads what is old.
    async fn read(&mut self) {
        let started = Instant::now();
        let read = self.try_read().await;
        self.app.trouble = read.err().map(|e| e.what);
        self.took = started.elapsed();
        self.read_next = Instant::now() + READ_EVERY_AT_MOST.max(self.took * 10);
    }

    async fn try_read(&mut self) -> Result<()> {
        let store = self.remote.store().clone();
        if self.list_is_old {
            // First this: what comes while the list is read is news again.
            self.position = store.position().await?;
            self.app.set_runs(data::runs(self.global, &*store).await?);
            self.list_is_old = false;
            self.detail_is_old = true;
        }
        self.detail_is_old = false;
        self.app.detail = match &self.app.selected {
            Some(run) => data::detail(self.global, &*store, run).await.map(Some)?,
            None => None,
        };
        Ok(())
    }

    /// What nobody tells of: who owns the store, and whether it can be read again.
    fn look_around(&mut self) {
        self.app.owner = open::owner_words(self.global);
        self.ticks += 1;
        // There are ages in them, in seconds while they are young.
        let updated_us = self.app.selected_run().map(|run| run.info.updated_us);
        let age_us = time::now_us().saturating_sub(updated_us.unwrap_or(0));
        let is_due = age_us < YOUNG_US || self.ticks.is_multiple_of(TICKS_IF_OLD);
        self.detail_is_old |= is_due && self.took < CHEAP;
        if self.app.trouble.is_some() {
            if let Ok(remote) = open::remote(self.global) {
                self.remote = remote;
                self.position = 0;
            }
            self.list_is_old = true;
        }
    }

    fn note(&mut self, news: News) {
        let given = self.app.given.iter_mut();
        if let Some(given) = given.rev().find(|given| given.number == news.number) {
            given.fate = news.fate;
        }
        self.app.owner = open::owner_words(self.global);
    }

    /// Takes a key; whether it was the last one.
    async fn take(&mut self, event: Event) -> bool {
        let Event::Key(key) = event else {
            // A resize: it is drawn anew anyway.
            return false;
        };
        if key.kind == KeyEventKind::Release {
            return false;
        }
        match self.app.key(&key) {
            Some(Action::Quit) => return true,
            Some(Action::Selected) => {
                self.detail_is_old = true;
                // Who moves wants to see it now.
                let soon = Instant::now() + Duration::from_millis(20);
                self.read_next = self.read_next.min(soon);
            }
            Some(Action::Ask(wish)) => match self.ask(wish).await {
                Ok(Ok(dialog)) => {
                    self.app.dialog = Some(dialog);
                    self.arm_at = Some(Instant::now() + ARM_AFTER);
                }
                Ok(Err(notice)) => self.app.notice = Some(notice),
                Err(e) => self.app.notice = Some(e.what),
            },
            Some(Action::Say(order)) => {
                self.numbers += 1;
                let number = self.numbers;
                self.app.given.push(Given {
                    number,
                    words: order.words(),
                    fate: Fate::Sending,
                });
                let many = self.app.given.len().saturating_sub(REMEMBERED);
                self.app.given.drain(..many);
                if let Err(e) = self.prepare(&order).await {
                    let fate = Fate::Refused(e.what);
                    self.note(News { number, fate });
                    return false;
                }
                let (remote, by) = (self.remote.clone(), self.by.clone());
                tokio::spawn(orders::give(remote, by, order, number, self.news.clone()));
            }
            None => {}
        }
        false
    }

    /// A step that a dead process of a script has left is not recorded as in doubt yet.
    async fn prepare(&self, order: &orders::Order) -> Result<()> {
        if !order.what.is_about_doubt() {
            return Ok(());
        }
        let journal = data::journal(&**self.remote.store(), &order.run).await?;
        left_behind::hand_to_person(self.global, &order.run, &journal).await
    }

    /// What exactly would be said; or why there is nothing to say.
    async fn ask(&self, wish: Wish) -> Result<Result<Dialog, String>> {
        let Some(run) = self.app.selected_run() else {
            return Ok(Err("no run is selected".to_owned()));
        };
        let name = run.info.run.name();
        let store = &**self.remote.store();
        if run.info.status.is_final() {
            let status = run.info.status;
            return Ok(Err(format!("{} has ended: {status}", shown(name))));
        }
        let kind = match wish {
            Wish::Approve | Wish::Deny => {
                let asked = data::asked(store, name).await?;
                if asked.is_empty() {
                    return Ok(Err(format!("{} asks for no approval", shown(name))));
                }
                match wish {
                    Wish::Approve => Kind::Approve { asked, at: 0 },
                    _ => Kind::Deny {
                        asked,
                        at: 0,
                        why: Input::default(),
                    },
                }
            }
            Wish::Resolve => match data::doubtful(store, name).await? {
                Some(doubt) => Kind::Resolve(doubt),
                None => return Ok(Err(format!("no step of {} is in doubt", shown(name)))),
            },
            Wish::Signal => {
                let waits = run.waits.iter();
                let mut names = waits.filter_map(|wait| wait.strip_prefix("signal "));
                let name = names.next().map(|id| id.split('#').next().unwrap_or(id));
                Kind::Signal {
                    in_value: name.is_some(),
                    name: Input::new(name.unwrap_or_default()),
                    value: Input::default(),
                }
            }
            Wish::Cancel => Kind::Cancel {
                reason: Input::default(),
            },
            Wish::GoOn => match &run.info.attention {
                Some(reason) => Kind::GoOn {
                    reason: reason.clone(),
                },
                None => return Ok(Err(format!("{} is not in attention", shown(name)))),
            },
        };
        Ok(Ok(Dialog::new(name, kind)))
    }
}

/// Keys and resizes, from a thread of their own that sleeps until there is one.
fn keys() -> UnboundedReceiver<std::io::Result<Event>> {
    let (sender, keys) = unbounded_channel();
    std::thread::spawn(move || {
        loop {
            let event = crossterm::event::read();
            let is_over = event.is_err();
            if sender.send(event).is_err() || is_over {
                return;
            }
        }
    });
    keys
}
