//! A table with aligned columns.
//!
//! Invariant: nothing is cut unless it is printed on a terminal that is too narrow; then the column
//! that may give way does, and an ellipsis shows it. If that is not enough, the first column gives
//! way too, and columns at the right are left out: no line is broken by the terminal's edge.

use super::style::Style;
use super::text::{columns, fit, shown};

/// Between two columns.
const GAP: &str = "  ";
/// A column that gives way keeps so many columns of the terminal.
const AT_LEAST: usize = 8;
/// And the first one, which says what the row is about.
const FIRST_AT_LEAST: usize = 16;

/// A cell: text from anywhere, escaped when it is made.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Plain text.
    pub fn new(text: impl AsRef<str>) -> Cell {
        Cell::styled(Style::Plain, text)
    }

    /// Text in a style.
    pub fn styled(style: Style, text: impl AsRef<str>) -> Cell {
        let text = shown(text.as_ref());
        Cell { text, style }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::new(text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// Columns with headings, and rows.
#[derive(Clone, Debug, Default)]
pub struct Table {
    headings: Vec<(String, Align)>,
    /// Which columns give way on a narrow terminal, the first one first.
    gives_way: Vec<usize>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// With no columns yet.
    pub fn new() -> Table {
        Table::default()
    }

    /// A column of text.
    pub fn text(mut self, heading: &str) -> Table {
        self.headings.push((heading.to_owned(), Align::Left));
        self
    }

    /// A column of numbers.
    pub fn number(mut self, heading: &str) -> Table {
        self.headings.push((heading.to_owned(), Align::Right));
        self
    }

    /// The last column that was added gives way on a narrow terminal, after those before.
    pub fn flexible(mut self) -> Table {
        self.gives_way.push(self.headings.len().saturating_sub(1));
        self
    }

    /// A row; cells that are left out are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// As text, in at most so many columns if there is a limit.
    pub fn render(&self, width: Option<usize>, color: bool) -> String {
        let widths = self.widths(width);
        let headings = self.headings.iter();
        let headings: Vec<_> = headings
            .map(|(text, _)| Cell::styled(Style::Dim, text))
            .collect();
        let has_headings = self.headings.iter().any(|(text, _)| !text.is_empty());
        let rows = has_headings
            .then_some(&headings)
            .into_iter()
            .chain(&self.rows);
        rows.map(|row| self.line(row, &widths, color)).collect()
    }

    /// Of the columns that there is room for.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<_> = self
            .headings
            .iter()
            .map(|(text, _)| columns(text))
            .collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(columns(&cell.text));
            }
        }
        let total = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
        let mut over = limit.map_or(0, |limit| total.saturating_sub(limit));
        for column in &self.gives_way {
            let give = over.min(widths[*column].saturating_sub(AT_LEAST));
            widths[*column] -= give;
            over -= give;
        }
        if let Some(first) = widths.first_mut() {
            let give = over.min(first.saturating_sub(FIRST_AT_LEAST));
            *first -= give;
            over -= give;
        }
        while over > 0 && widths.len() > 1 {
            let left_out = widths.pop().unwrap_or_default() + GAP.len();
            over = over.saturating_sub(left_out);
        }
        widths
    }

    fn line(&self, row: &[Cell], widths: &[usize], color: bool) -> String {
        let mut line = String::new();
        // Blanks are written only in front of something: no line ends in them.
        let mut blanks = 0;
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            let text = fit(&cell.text, *width);
            let pad = width - columns(&text).min(*width);
            let is_right = self.headings[at].1 == Align::Right;
            blanks += if is_right { pad } else { 0 };
            if !text.is_empty() {
                line.extend(std::iter::repeat_n(' ', blanks));
                line.push_str(&cell.style.paint(&text, color));
                blanks = 0;
            } else {
                blanks += columns(&text);
            }
            blanks += if is_right { 0 } else { pad } + GAP.len();
        }
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let mut table = Table::new()
            .text("RUN")
            .flexible()
            .number("COST")
            .text("WAITS FOR");
        table.row(["order-42".into(), "7".into(), "approval refund#1".into()]);
        table.row(["東京 🐋".into(), "12345".into(), "".into()]);
        table
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(
            example().render(None, false),
            "RUN        COST  WAITS FOR\n\
             order-42      7  approval refund#1\n\
             東京 🐋   12345\n"
        );
    }

    #[test]
    fn only_a_terminal_cuts_and_only_what_gives_way() {
        let mut table = Table::new().text("RUN").flexible().text("STATUS");
        table.row(["a very long name of a run".into(), "completed".into()]);
        assert_eq!(
            table.render(Some(24), false),
            "RUN            STATUS\na very long …  completed\n"
        );
        assert!(
            table
                .render(None, false)
                .contains("name of a run  completed")
        );
    }

    #[test]
    fn on_a_very_narrow_terminal_the_columns_at_the_right_are_left_out() {
        let mut table = Table::new().text("RUN").text("STATUS").number("AGE");
        table.row(["a very long name of a run", "completed", "1m 30s"].map(Cell::new));
        assert_eq!(
            table.render(Some(30), false),
            "RUN               STATUS\na very long nam…  completed\n"
        );
        for width in 0..80 {
            let lines = table.render(Some(width), false);
            let widest = lines.lines().map(columns).max();
            assert!(widest <= Some(width.max(FIRST_AT_LEAST)), "{width}");
        }
    }

    #[test]
    fn cells_cannot_break_lines() {
        let mut table = Table::new().text("");
        table.row(["a\nb\x1b[0m".into()]);
        assert_eq!(table.render(None, false), "a\\nb\\u{1b}[0m\n");
    }
}
