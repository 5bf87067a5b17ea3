//! Questions before something is said to a run: they show exactly what will be said.
//!
//! Invariants: nothing is sent by a single key. Approving needs `y` in a dialog that shows what is
//! approved; what needs words is sent by Enter in a dialog that shows them. And nothing is sent by
//! keys that were typed before the dialog could be seen: it takes none until it is armed.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

use super::data::{Asked, Doubtful};
use super::orders::{Order, What};
use crate::output::text::shown;

/// A question that is open.
#[derive(Clone, Debug)]
pub struct Dialog {
    pub run: String,
    pub kind: Kind,
    /// How far what it shows is scrolled.
    pub scroll: u16,
    /// It has been on the screen, and takes keys.
    pub armed: bool,
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum Kind {
    Approve {
        asked: Vec<Asked>,
        at: usize,
    },
    Deny {
        asked: Vec<Asked>,
        at: usize,
        why: Input,
    },
    Resolve(Doubtful),
    Happened {
        step: String,
        result: Input,
    },
    /// An answer that cannot be taken back, once more.
    Sure {
        what: What,
        words: &'static str,
    },
    Signal {
        name: Input,
        value: Input,
        in_value: bool,
    },
    Cancel {
        reason: Input,
    },
    GoOn {
        reason: String,
    },
}

/// A line that is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input(pub String);

impl Input {
    pub fn new(text: &str) -> Input {
        Input(text.to_owned())
    }

    /// Takes a key; whether it was one for writing.
    pub fn key(&mut self, key: &KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('u') if control => self.0.clear(),
            KeyCode::Char(c) if !control => self.0.push(c),
            KeyCode::Backspace => drop(self.0.pop()),
            _ => return false,
        }
        true
    }
}

/// What a key in a dialog came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// It stays open.
    Stay,
    /// It closes, and nothing is said.
    Leave,
    /// It closes, and this is said.
    Say(Order),
}

/// As JSON if it is, else as text.
pub fn value(text: &str) -> Value {
    match text.trim() {
        "" => Value::Null,
        trimmed => serde_json::from_str(trimmed).unwrap_or_else(|_| Value::String(text.to_owned())),
    }
}

impl Dialog {
    pub fn new(run: &str, kind: Kind) -> Dialog {
        Dialog {
            run: run.to_owned(),
            kind,
            scroll: 0,
            armed: false,
        }
    }

    /// Takes a key.
    pub fn key(&mut self, key: &KeyEvent) -> Next {
        match key.code {
            KeyCode::Esc => return Next::Leave,
            _ if !self.armed => {}
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll = self.scroll.saturating_add(1),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            _ => return self.answer(key),
        }
        Next::Stay
    }

    fn say(&self, what: What) -> Next {
        let run = self.run.clone();
        Next::Say(Order { run, what })
    }

    fn answer(&mut self, key: &KeyEvent) -> Next {
        let enter = key.code == KeyCode::Enter;
        match &mut self.kind {
            Kind::Approve { asked, at } => match key.code {
                KeyCode::Char('y') => {
                    let (id, hash) = (asked[*at].id.clone(), asked[*at].hash.clone());
                    return self.say(What::Approve { id, hash });
                }
                KeyCode::Char('n' | 'q') => return Next::Leave,
                KeyCode::Tab => {
                    *at = (*at + 1) % asked.len();
                    self.scroll = 0;
                }
                _ => {}
            },
            Kind::Deny { asked, at, why } => match key.code {
                KeyCode::Enter => {
                    let (id, why) = (asked[*at].id.clone(), why.0.clone());
                    return self.say(What::Deny { id, why });
                }
                KeyCode::Tab => *at = (*at + 1) % asked.len(),
                _ => drop(why.key(key)),
            },
            Kind::Resolve(doubt) => {
                let step = doubt.step.clone();
                match key.code {
                    KeyCode::Char('h') => {
                        let result = Input::default();
                        self.kind = Kind::Happened { step, result };
                    }
                    KeyCode::Char('d') => {
                        self.kind = Kind::Sure {
                            what: What::DidNotHappen { step },
                            words: "It did not happen: it will be sent now.",
                        }
                    }
                    KeyCode::Char('f') => {
                        self.kind = Kind::Sure {
                            what: What::Fail { step },
                            words: "Nobody will ever know: the run fails.",
                        }
                    }
                    KeyCode::Char('n' | 'q') => return Next::Leave,
                    _ => {}
                }
            }
            Kind::Happened { step, result } if enter => {
                let (step, result) = (step.clone(), value(&result.0));
                return self.say(What::Happened { step, result });
            }
            Kind::Happened { result, .. } => drop(result.key(key)),
            Kind::Signal {
                name, value: sent, ..
            } if enter && !name.0.is_empty() => {
                let (name, value) = (name.0.clone(), value(&sent.0));
                return self.say(What::Signal { name, value });
            }
            Kind::Signal {
                name,
                value,
                in_value,
            } => match key.code {
                KeyCode::Tab | KeyCode::Enter => *in_value = !*in_value,
                _ if *in_value => drop(value.key(key)),
                _ => drop(name.key(key)),
            },
            Kind::Cancel { reason } if enter => {
                let reason = reason.0.clone();
                return self.say(What::Cancel { reason });
            }
            Kind::Cancel { reason } => drop(reason.key(key)),
            Kind::Sure { what, .. } => match key.code {
                KeyCode::Char('y') => {
                    let what = what.clone();
                    return self.say(what);
                }
                KeyCode::Char('n' | 'q') => return Next::Leave,
                _ => {}
            },
            Kind::GoOn { .. } => match key.code {
                KeyCode::Char('y') => return self.say(What::GoOn),
                KeyCode::Char('n' | 'q') => return Next::Leave,
                _ => {}
            },
        }
        Next::Stay
    }

    /// Its title.
    pub fn title(&self) -> String {
        let run = &self.run;
        let title = match &self.kind {
            Kind::Approve { asked, at } => format!("Approve {} of {run}?", asked[*at].id),
            Kind::Deny { asked, at, .. } => format!("Deny {} of {run}?", asked[*at].id),
            Kind::Resolve(doubt) => format!("Did {} of {run} happen?", doubt.step),
            Kind::Happened { step, .. } => format!("{step} of {run} happened"),
            Kind::Sure { .. } => format!("{run}: are you sure?"),
            Kind::Signal { .. } => format!("Send a signal to {run}"),
            Kind::Cancel { .. } => format!("Cancel {run} and its children?"),
            Kind::GoOn { .. } => format!("Let {run} try again?"),
        };
        shown(&title)
    }

    /// What it shows, safe to print.
    pub fn body(&self) -> Vec<String> {
        match &self.kind {
            Kind::Approve { asked, at } | Kind::Deny { asked, at, .. } => {
                let mut lines = asked[*at].payload.clone();
                lines.push(String::new());
                if let Some(expires) = &asked[*at].expires {
                    lines.push(format!("an answer counts until {expires}"));
                }
                lines.push(format!("hash {}", asked[*at].hash));
                if asked.len() > 1 {
                    let (at, count) = (at + 1, asked.len());
                    lines.push(format!("request {at} of {count}: Tab shows the next"));
                }
                lines
            }
            Kind::Resolve(doubt) => {
                let mut lines = doubt.facts.clone();
                lines.push(String::new());
                lines.push("Look at the other side before you answer.".to_owned());
                lines
            }
            Kind::Happened { result, .. } => vec![
                "What did it give? JSON, or text; empty for nothing.".to_owned(),
                sent_as(&result.0),
            ],
            Kind::Sure { words, .. } => vec![(*words).to_owned()],
            Kind::Signal { value, .. } => vec![sent_as(&value.0)],
            Kind::Cancel { .. } => vec!["It ends at its next step.".to_owned()],
            Kind::GoOn { reason } => {
                let mut lines = vec![shown(reason), String::new()];
                lines.push("Only if the cause is gone.".to_owned());
                lines
            }
        }
    }

    /// The lines that are being written: name, text, whether the cursor is in it.
    pub fn inputs(&self) -> Vec<(&'static str, String, bool)> {
        let text = |input: &Input| shown(&input.0);
        match &self.kind {
            Kind::Deny { why, .. } => vec![("why", text(why), true)],
            Kind::Happened { result, .. } => vec![("result", text(result), true)],
            Kind::Cancel { reason } => vec![("why", text(reason), true)],
            Kind::Signal {
                name,
                value,
                in_value,
            } => vec![
                ("name", text(name), !in_value),
                ("value", text(value), *in_value),
            ],
            _ => Vec::new(),
        }
    }

    /// Which keys answer it.
    pub fn keys(&self) -> &'static str {
        match &self.kind {
            _ if !self.armed => "…",
            Kind::Approve { .. } => "y approve  n leave  ↑↓ scroll",
            Kind::Deny { .. } => "Enter deny  Esc leave  ↑↓ scroll",
            Kind::Resolve(_) => "h it happened  d it did not  f fail the run  Esc leave",
            Kind::Happened { .. } => "Enter say so  Esc leave",
            Kind::Signal { .. } => "Enter send  Tab other field  Esc leave",
            Kind::Cancel { .. } => "Enter cancel the run  Esc leave",
            Kind::Sure { .. } => "y yes  n leave",
            Kind::GoOn { .. } => "y go on  n leave",
        }
    }
}

fn sent_as(text: &str) -> String {
    format!("sent as {}", shown(&value(text).to_string()))
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    fn press(dialog: &mut Dialog, code: KeyCode) -> Next {
        dialog.armed = true;
        dialog.key(&KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn write(dialog: &mut Dialog, text: &str) {
        for c in text.chars() {
            assert_eq!(press(dialog, KeyCode::Char(c)), Next::Stay);
        }
    }

    fn asked(id: &str) -> Asked {
        Asked {
            id: id.to_owned(),
            payload: vec!["\"a letter\"".to_owned()],
            hash: format!("hash of {id}"),
            expires: None,
        }
    }

    #[test]
    fn approving_needs_a_yes_to_what_is_shown() {
        let asked = vec![asked("publish#1"), asked("publish#2")];
        let mut dialog = Dialog::new("r", Kind::Approve { asked, at: 0 });
        assert!(dialog.body().contains(&"\"a letter\"".to_owned()));
        assert_eq!(press(&mut dialog, KeyCode::Enter), Next::Stay);
        assert_eq!(press(&mut dialog, KeyCode::Tab), Next::Stay);
        let Next::Say(order) = press(&mut dialog, KeyCode::Char('y')) else {
            panic!("nothing was said");
        };
        let (id, hash) = ("publish#2".to_owned(), "hash of publish#2".to_owned());
        assert_eq!(order.what, What::Approve { id, hash });
        assert_eq!(press(&mut dialog, KeyCode::Char('n')), Next::Leave);
        assert_eq!(press(&mut dialog, KeyCode::Esc), Next::Leave);
    }

    #[test]
    fn what_was_typed_before_it_is_shown_is_no_answer() {
        let asked = vec![asked("publish#1")];
        let mut dialog = Dialog::new("r", Kind::Approve { asked, at: 0 });
        let yes = KeyEvent::new(KeyCode::Char('y'), KeyModifiers::NONE);
        assert_eq!(dialog.key(&yes), Next::Stay);
        dialog.armed = true;
        assert!(matches!(dialog.key(&yes), Next::Say(_)));
    }

    #[test]
    fn words_are_written_and_sent() {
        let kind = Kind::Signal {
            name: Input::default(),
            value: Input::default(),
            in_value: false,
        };
        let mut dialog = Dialog::new("r", kind);
        assert_eq!(press(&mut dialog, KeyCode::Enter), Next::Stay, "no name");
        press(&mut dialog, KeyCode::Tab);
        write(&mut dialog, "goq");
        press(&mut dialog, KeyCode::Backspace);
        press(&mut dialog, KeyCode::Tab);
        write(&mut dialog, "[1, 2]");
        let Next::Say(order) = press(&mut dialog, KeyCode::Enter) else {
            panic!("nothing was said");
        };
        let value = serde_json::json!([1, 2]);
        let name = "go".to_owned();
        assert_eq!(order.what, What::Signal { name, value });
    }

    #[test]
    fn a_doubt_has_three_answers() {
        let doubt = Doubtful {
            step: "send#1".to_owned(),
            facts: Vec::new(),
        };
        let dialog = Dialog::new("r", Kind::Resolve(doubt));
        let step = "send#1".to_owned();
        let said = |keys: &str, enter: bool| {
            let mut dialog = dialog.clone();
            let mut next = Next::Stay;
            for c in keys.chars() {
                next = press(&mut dialog, KeyCode::Char(c));
            }
            match enter {
                true => press(&mut dialog, KeyCode::Enter),
                false => next,
            }
        };
        let order = |what| {
            let run = "r".to_owned();
            Next::Say(Order { run, what })
        };
        let did_not = What::DidNotHappen { step: step.clone() };
        assert_eq!(said("n", false), Next::Leave);
        assert_eq!(said("d", false), Next::Stay);
        assert_eq!(said("dn", false), Next::Leave);
        assert_eq!(said("dy", false), order(did_not));
        assert_eq!(said("fy", false), order(What::Fail { step: step.clone() }));
        let result = Value::String("receipt".to_owned());
        assert_eq!(
            said("hreceipt", true),
            order(What::Happened { step, result })
        );
    }
}
