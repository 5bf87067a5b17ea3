//! Text from a store, made safe to print.
//!
//! Invariant: whatever an agent, a model or a file put into a name, payload or error, it cannot move
//! the cursor, change colours, ring, forge lines or turn the writing direction around.

use std::fmt::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A text on one line, with everything escaped that a terminal would act on.
pub fn shown(text: &str) -> String {
    escape(text, false)
}

/// The same over more than one line: line breaks and tabs stay.
pub fn shown_lines(text: &str) -> String {
    escape(text, true)
}

fn escape(text: &str, lines: bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' if lines => safe.push(c),
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            c if c.is_control() || turns_around(c) => {
                // Writing to a string does not fail.
                let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Line separators, marks and overrides of the writing direction, and what has no width at all.
fn turns_around(c: char) -> bool {
    matches!(c,
        '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// A text as one word of a shell's command line, safe to print and to paste.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@+,".contains(c);
    // A hash sign begins a comment only at the beginning of a word.
    let is_plain = text.chars().all(|c| plain(c) || c == '#') && !text.starts_with(['#', '-', '=']);
    match is_plain && !text.is_empty() {
        true => text.to_owned(),
        false => format!("'{}'", shown(text).replace('\'', "'\\''")),
    }
}

/// How many columns a text takes.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// The text in at most so many columns, with an ellipsis if something is left out.
pub fn fit(text: &str, limit: usize) -> String {
    if columns(text) <= limit {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > limit {
            break;
        }
        short.push(c);
    }
    if limit > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_the_cursor() {
        assert_eq!(shown("a\x1b[2Jb\r\n\x07"), "a\\u{1b}[2Jb\\r\\n\\u{7}");
        assert_eq!(shown("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(shown("abc\u{202e}fed"), "abc\\u{202e}fed");
        assert_eq!(shown_lines("a\n\tb\r"), "a\n\tb\\r");
        assert_eq!(shown("mañana 東京 🐋 👩‍🚀"), "mañana 東京 🐋 👩‍🚀");
    }

    #[test]
    fn a_quoted_text_is_one_word() {
        for (text, word) in [
            ("order-42", "order-42"),
            ("refund#1", "refund#1"),
            ("report on whales", "'report on whales'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
            ("#1", "'#1'"),
            ("$(rm -r ~)", "'$(rm -r ~)'"),
        ] {
            assert_eq!(quoted(text), word);
        }
    }

    #[test]
    fn what_is_too_wide_is_cut() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdef", 5), "abcd…");
        assert_eq!(fit("東京都", 4), "東…");
        assert_eq!(fit("abc", 1), "…");
        assert_eq!(fit("abc", 0), "");
    }
}
