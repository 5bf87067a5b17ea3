//! A row as a JSON object on one line, for machines.

use std::fmt::Write;

use crate::row::Row;

/// The keys are promised: row, unit, ours, anchor, anchor_name, ratio, goal, met. The last is null
/// for a row without a goal.
pub fn object(row: &Row) -> String {
    format!(
        "{{\"row\":{},\"unit\":{},\"ours\":{},\"anchor\":{},\"anchor_name\":{},\"ratio\":{},\
         \"goal\":{},\"met\":{}}}",
        text(&row.name),
        text(row.unit),
        number(row.ours()),
        number(row.anchor()),
        text(row.anchor_name),
        number(row.ratio()),
        text(&row.goal.to_string()),
        row.met()
            .map_or("null", |met| if met { "true" } else { "false" }),
    )
}

fn number(value: f64) -> String {
    if value.is_finite() {
        // Enough for any comparison; more digits would only be noise.
        format!("{value:.4}")
    } else {
        "null".into()
    }
}

fn text(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Round;
    use crate::row::Goal;

    #[test]
    fn is_one_object_with_the_promised_keys() {
        let (ours, anchor) = (3.0, 2.0);
        let row = Row {
            name: "a \"row\"\n".into(),
            unit: "µs",
            anchor_name: "raw",
            goal: Goal::RatioAtMost(1.4),
            rounds: vec![Round { ours, anchor }],
        };
        assert_eq!(
            object(&row),
            r#"{"row":"a \"row\"\u000a","unit":"µs","ours":3.0000,"anchor":2.0000,"anchor_name":"raw","ratio":1.5000,"goal":"ratio <= 1.4","met":false}"#
        );
        assert_eq!(number(f64::NAN), "null");
    }
}
