//! Rows as an aligned table, for people.

use crate::row::Row;

const HEADS: [&str; 9] = [
    "row",
    "unit",
    "ours",
    "anchor",
    "ratio",
    "spread",
    "goal",
    "met",
    "anchor is",
];
/// Numbers stand on the right.
const RIGHT: [bool; 9] = [false, false, true, true, true, true, false, false, false];
const MET: usize = 7;

const BOLD: &str = "\x1b[1m";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// The table, with colours if they are wanted.
pub fn render(rows: &[Row], coloured: bool) -> String {
    let mut lines = vec![HEADS.map(str::to_owned)];
    lines.extend(rows.iter().map(cells));
    let widths: Vec<usize> = (0..HEADS.len())
        .map(|column| {
            let width = |line: &[String; 9]| line[column].chars().count();
            lines.iter().map(width).max().unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let cell = align(cell, widths[column], RIGHT[column]);
            let colour = match column {
                _ if !coloured => None,
                _ if i == 0 => Some(BOLD),
                MET if line[MET] == "yes" => Some(GREEN),
                MET if line[MET] == "no" => Some(RED),
                _ => None,
            };
            match colour {
                Some(colour) => text.push_str(&format!("{colour}{cell}{PLAIN}  ")),
                None => text.push_str(&format!("{cell}  ")),
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

fn cells(row: &Row) -> [String; 9] {
    let (low, high) = row.spread();
    [
        row.name.clone(),
        row.unit.into(),
        number(row.ours()),
        number(row.anchor()),
        number(row.ratio()),
        format!("{}..{}", number(low), number(high)),
        row.goal.to_string(),
        row.met()
            .map_or("-", |met| if met { "yes" } else { "no" })
            .into(),
        row.anchor_name.into(),
    ]
}

fn align(cell: &str, width: usize, right: bool) -> String {
    if right {
        format!("{cell:>width$}")
    } else {
        format!("{cell:<width$}")
    }
}

/// Three digits that matter, or all before the point.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Round;
    use crate::row::Goal;

    #[test]
    fn columns_are_aligned_and_colour_is_optional() {
        let row = |name: &str, ours| Row {
            name: name.into(),
            unit: "µs",
            anchor_name: "raw",
            goal: Goal::RatioAtMost(1.5),
            rounds: vec![Round {
                ours,
                anchor: 100.0,
            }],
        };
        let rows = [row("short", 120.0), row("a longer one", 1000.0)];
        assert_eq!(
            render(&rows, false),
            "\
row           unit  ours  anchor  ratio      spread  goal          met  anchor is
short         µs     120     100   1.20  1.20..1.20  ratio <= 1.5  yes  raw
a longer one  µs    1000     100   10.0  10.0..10.0  ratio <= 1.5  no   raw
"
        );
        assert!(render(&rows, true).contains("\x1b[31mno "));
    }
}
