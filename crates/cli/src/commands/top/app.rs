//! What is on the screen and what keys do to it. Nothing here reads or writes anything.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use dalsegno::views::Listed;

use super::data::{Detail, waits_for};
use super::dialog::{Dialog, Next};
use super::orders::{Fate, Order};

/// Which side of a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    Why,
    Timeline,
}

/// What a person wants to do to the selected run; what it is exactly must be read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Approve,
    Deny,
    Resolve,
    Signal,
    Cancel,
    GoOn,
}

/// What a key came to that the screen cannot do by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Quit,
    /// Another run is selected.
    Selected,
    Ask(Wish),
    Say(Order),
}

/// An order, and what became of it.
#[derive(Clone, Debug)]
pub struct Given {
    pub number: u64,
    pub words: String,
    pub fate: Fate,
}

/// What is on the screen.
#[derive(Debug)]
pub struct App {
    pub store: String,
    pub owner: Option<String>,
    pub runs: Vec<Listed>,
    /// How many of them need a person.
    pub needing: usize,
    /// Those that the filter leaves, as places in `runs`. Kept, because a list may be long, and is
    /// drawn and moved in far more often than it changes.
    shown: Vec<usize>,
    /// By name: it stays selected wherever it moves.
    pub selected: Option<String>,
    /// Where that is in `shown`.
    at: Option<usize>,
    /// The first row of the list on the screen, in `shown`.
    pub first_row: usize,
    pub filter: String,
    pub is_typing: bool,
    /// The details have the whole screen.
    pub is_open: bool,
    pub tab: Tab,
    pub scroll: u16,
    pub detail: Option<Detail>,
    pub dialog: Option<Dialog>,
    pub help: bool,
    pub given: Vec<Given>,
    /// Something to say that is no order.
    pub notice: Option<String>,
    /// Why the store cannot be read now.
    pub trouble: Option<String>,
    pub now_us: u64,
    pub color: bool,
}

impl App {
    pub fn new(store: String, filter: String, color: bool) -> App {
        App {
            store,
            owner: None,
            runs: Vec::new(),
            needing: 0,
            shown: Vec::new(),
            selected: None,
            at: None,
            first_row: 0,
            filter,
            is_typing: false,
            is_open: false,
            tab: Tab::Why,
            scroll: 0,
            detail: None,
            dialog: None,
            help: false,
            given: Vec::new(),
            notice: None,
            trouble: None,
            now_us: 0,
            color,
        }
    }

    /// How many runs are shown.
    pub fn count(&self) -> usize {
        self.shown.len()
    }

    /// The runs of these rows, as far as there are some.
    pub fn rows(&self, first: usize, count: usize) -> impl Iterator<Item = &Listed> {
        let rows = self.shown.iter().skip(first).take(count);
        rows.map(|place| &self.runs[*place])
    }

    /// Where the selected run is in what is shown.
    pub fn at(&self) -> Option<usize> {
        self.at
    }

    /// The selected run.
    pub fn selected_run(&self) -> Option<&Listed> {
        self.rows(self.at?, 1).next()
    }

    /// Takes a new list. What was selected stays so while it is shown.
    pub fn set_runs(&mut self, runs: Vec<Listed>) {
        self.needing = runs.iter().filter(|run| run.needs_person()).count();
        self.runs = runs;
        self.sift(self.at.unwrap_or(0));
    }

    /// Finds what the filter leaves, and the selected run in it, or the one nearest to a row.
    fn sift(&mut self, near: usize) {
        let wanted = self.filter.to_lowercase();
        let runs = self.runs.iter().enumerate();
        let left = runs.filter(|(_, run)| wanted.is_empty() || has(run, &wanted));
        self.shown = left.map(|(place, _)| place).collect();
        let selected = self.selected.as_deref();
        let mut rows = self.rows(0, usize::MAX);
        let found = rows.position(|run| Some(run.info.run.name()) == selected);
        drop(rows);
        match found {
            Some(at) => self.at = Some(at),
            None => self.select(near.min(self.count().saturating_sub(1))),
        }
    }

    fn select(&mut self, at: usize) {
        let name = self.rows(at, 1).next().map(|run| run.info.run.name());
        self.selected = name.map(str::to_owned);
        self.at = self.selected.is_some().then_some(at);
        self.scroll = 0;
    }

    /// Takes a key.
    pub fn key(&mut self, key: &KeyEvent) -> Option<Action> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return Some(Action::Quit);
        }
        if let Some(dialog) = &mut self.dialog {
            return match dialog.key(key) {
                Next::Stay => None,
                Next::Leave => {
                    self.dialog = None;
                    None
                }
                Next::Say(order) => {
                    self.dialog = None;
                    Some(Action::Say(order))
                }
            };
        }
        if self.help {
            self.help = false;
            return None;
        }
        if self.is_typing {
            return self.type_filter(key);
        }
        self.notice = None;
        self.command(key)
    }

    fn type_filter(&mut self, key: &KeyEvent) -> Option<Action> {
        match key.code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => return None,
        }
        self.sift(0);
        Some(Action::Selected)
    }

    fn command(&mut self, key: &KeyEvent) -> Option<Action> {
        match key.code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('/') => {
                self.is_typing = true;
                self.is_open = false;
            }
            KeyCode::Esc if self.is_open => self.is_open = false,
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                self.sift(0);
                return Some(Action::Selected);
            }
            KeyCode::Enter => {
                self.is_open = !self.is_open && self.selected.is_some();
                self.scroll = 0;
            }
            KeyCode::Tab => {
                self.tab = match self.tab {
                    Tab::Why => Tab::Timeline,
                    Tab::Timeline => Tab::Why,
                };
                self.scroll = 0;
            }
            KeyCode::Down | KeyCode::Char('j') => return self.step(1),
            KeyCode::Up | KeyCode::Char('k') => return self.step(-1),
            KeyCode::PageDown => return self.step(10),
            KeyCode::PageUp => return self.step(-10),
            KeyCode::Home => return self.step(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => return self.step(isize::MAX),
            KeyCode::Char(c) => return self.wish(c),
            _ => {}
        }
        None
    }

    fn wish(&mut self, c: char) -> Option<Action> {
        let wish = match c {
            'a' => Wish::Approve,
            'd' => Wish::Deny,
            'r' => Wish::Resolve,
            's' => Wish::Signal,
            'c' => Wish::Cancel,
            'g' => Wish::GoOn,
            _ => return None,
        };
        self.at()?;
        Some(Action::Ask(wish))
    }

    /// Moves in the list, or in the details if these are open.
    fn step(&mut self, by: isize) -> Option<Action> {
        if self.is_open {
            // How far it can be is known where it is drawn.
            let to = (self.scroll as isize).saturating_add(by);
            self.scroll = to.clamp(0, isize::from(i16::MAX)) as u16;
            return None;
        }
        let last = self.count().checked_sub(1)?;
        let at = self.at.unwrap_or(0) as isize;
        self.select(at.saturating_add(by).clamp(0, last as isize) as usize);
        Some(Action::Selected)
    }

    /// The line about what was said last.
    pub fn last_said(&self) -> Option<(String, &Fate)> {
        let given = self.given.last()?;
        let words = &given.words;
        let line = match &given.fate {
            Fate::Sending => format!("{words}: sending"),
            Fate::Waiting if self.owner.is_none() => {
                format!("{words}: sent; no process owns the store now, the next one takes it up")
            }
            Fate::Waiting => format!("{words}: sent, waiting for the owner to take it up"),
            Fate::Taken(sequence) => format!("{words}: taken up as event {sequence}"),
            Fate::Refused(why) => format!("{words}: refused: {why}"),
        };
        Some((line, &given.fate))
    }
}

/// Whether one of the texts of a run has this in it.
fn has(run: &Listed, wanted: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(wanted);
    has(run.info.run.name())
        || run.info.agent.as_deref().is_some_and(has)
        || has(&run.info.status.to_string())
        || (run.needs_person() && has("needs person"))
        || has(&waits_for(run))
}
