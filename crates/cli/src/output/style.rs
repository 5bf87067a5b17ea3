//! The few colours there are. They never carry a meaning alone: the words say the same.

use dalsegno_store::Status;

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// As everything else.
    #[default]
    Plain,
    /// A heading.
    Bold,
    /// Of less interest.
    Dim,
    /// Well done.
    Good,
    /// Going on.
    Active,
    /// Somebody should look.
    Warn,
    /// Wrong.
    Bad,
}

impl Style {
    /// The text, in colour if that is wanted.
    pub fn paint(self, text: &str, color: bool) -> String {
        let code = match self {
            Style::Plain => return text.to_owned(),
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Active => "36",
            Style::Warn => "1;33",
            Style::Bad => "31",
        };
        match color && !text.is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// Of a run's status.
    pub fn of(status: Status) -> Style {
        match status {
            Status::Running => Style::Active,
            Status::Completed => Style::Good,
            Status::Failed => Style::Bad,
            Status::Cancelled => Style::Dim,
            _ => Style::Plain,
        }
    }
}
