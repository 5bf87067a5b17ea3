//! Reports as JSON, for programs.

use std::fmt::Write;

use super::{Problem, StoreReport};

impl StoreReport {
    /// The report as one JSON object.
    pub fn to_json(&self) -> String {
        let mut json = Json::default();
        json.open('{');
        json.key("dir").text(&self.dir.display().to_string());
        json.key("sound")
            .raw(if self.is_sound() { "true" } else { "false" });
        for (key, number) in [
            ("position", self.position),
            ("segments", self.segments),
            ("streams", self.streams),
            ("events", self.events),
            ("pieces", self.pieces),
            ("snapshots", self.snapshots),
            ("indexes", self.indexes),
            ("letters", self.letters),
            ("archives", self.archives),
        ] {
            json.key(key).raw(&number.to_string());
        }
        json.key("torn");
        match &self.torn {
            None => json.raw("null"),
            Some(torn) => {
                json.open('{');
                for (key, number) in [
                    ("segment", torn.segment),
                    ("offset", torn.offset),
                    ("bytes", torn.bytes),
                ] {
                    json.key(key).raw(&number.to_string());
                }
                json.key("reason").text(&torn.reason);
                json.close('}');
            }
        }
        for (key, problems) in [("losses", &self.losses), ("problems", &self.problems)] {
            json.key(key).open('[');
            problems.iter().for_each(|problem| json.problem(problem));
            json.close(']');
        }
        json.close('}');
        json.0
    }
}

/// JSON in the making.
#[derive(Debug, Default)]
pub(crate) struct Json(pub String);

impl Json {
    /// A comma, if something stands before.
    fn next(&mut self) {
        if !self.0.is_empty() && !self.0.ends_with(['{', '[', ':']) {
            self.0.push(',');
        }
    }

    pub fn open(&mut self, bracket: char) {
        self.next();
        self.0.push(bracket);
    }

    pub fn close(&mut self, bracket: char) {
        self.0.push(bracket);
    }

    pub fn key(&mut self, key: &str) -> &mut Json {
        self.text(key);
        self.0.push(':');
        self
    }

    pub fn raw(&mut self, value: &str) {
        self.next();
        self.0.push_str(value);
    }

    pub fn text(&mut self, text: &str) {
        self.next();
        self.0.push('"');
        for c in text.chars() {
            match c {
                '"' | '\\' => self.0.extend(['\\', c]),
                '\u{0}'..='\u{1f}' | '\u{7f}' => {
                    // Writing into a string cannot fail.
                    let _ = write!(self.0, "\\u{:04x}", c as u32);
                }
                _ => self.0.push(c),
            }
        }
        self.0.push('"');
    }

    fn problem(&mut self, problem: &Problem) {
        self.open('{');
        self.key("place").text(&problem.place);
        self.key("expected").text(&problem.expected);
        self.key("found").text(&problem.found);
        self.close('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_valid_json() {
        let mut report = StoreReport::default();
        let plain = report.to_json();
        assert!(
            plain.starts_with(r#"{"dir":"","sound":true,"position":0,"#),
            "{plain}"
        );
        assert!(
            plain.ends_with(r#""torn":null,"losses":[],"problems":[]}"#),
            "{plain}"
        );
        report.problems = vec![
            Problem::new("a\"b", "c\\d", "e\nf"),
            Problem::new("", "", ""),
        ];
        let json = report.to_json();
        let problems = r#""problems":[{"place":"a\"b","expected":"c\\d","found":"e\u000af"},"#;
        assert!(json.contains(problems), "{json}");
        assert!(json.contains(r#""sound":false"#), "{json}");
    }
}
