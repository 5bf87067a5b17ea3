//! Reads plans from a server's log, and statements from the sources.

use serde_json::Value;

/// The tables that grow.
const GROWING: [&str; 7] = [
    "stream",
    "event",
    "run",
    "claimable",
    "timer",
    "piece",
    "letter",
];

/// What a person asks for by hand, and knows to read all there is: `verify`, and what `doctor` counts.
const READ_ALL: [&str; 2] = ["verify.rs", "about.rs"];

/// What a statement has read.
pub struct Seen {
    /// The most that one part of the plan has touched, those included that it threw away.
    pub rows: f64,
    /// Pages of tables and indexes.
    pub blocks: f64,
    /// Indexes and tables, in the order of the plan.
    pub scans: Vec<String>,
    is_sequential: bool,
    pub text: String,
}

impl Seen {
    /// Whether it has read what it did not need: a table from its beginning, or far more rows or
    /// pages than there can be in an answer.
    pub fn goes_through_a_table(&self, rows_at_most: f64) -> bool {
        self.is_sequential || self.rows > rows_at_most || self.blocks > 300.0 + 20.0 * self.rows
    }

    pub fn line(&self) -> String {
        let Seen { rows, blocks, .. } = self;
        format!("{rows} rows, {blocks} pages: {}", self.scans.join(", "))
    }

    fn visit(&mut self, node: &Value) {
        let text = |key: &str| node[key].as_str().unwrap_or_default();
        let number = |key: &str| node[key].as_f64().unwrap_or(0.0);
        let kind = text("Node Type");
        let grows = GROWING.contains(&text("Relation Name"));
        self.is_sequential |= kind == "Seq Scan" && grows;
        if kind.contains("Scan") && (grows || !text("Index Name").is_empty()) {
            let on = [text("Index Name"), text("Relation Name")];
            let on = on.into_iter().find(|name| !name.is_empty());
            let scan = format!("{kind} {}", on.unwrap_or_default());
            if !self.scans.contains(&scan) {
                self.scans.push(scan);
            }
        }
        if kind == "Sort" {
            self.scans
                .push(format!("Sort of {}", number("Actual Rows")));
        }
        let removed = number("Rows Removed by Filter") + number("Rows Removed by Join Filter");
        let touched = (number("Actual Rows") + removed) * number("Actual Loops");
        self.rows = self.rows.max(touched);
        for part in node["Plans"].as_array().into_iter().flatten() {
            self.visit(part);
        }
    }
}

/// One space instead of many.
fn plain(sql: &str) -> String {
    let code = sql.lines().filter(|line| !line.trim().starts_with("--"));
    let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
    words.join(" ")
}

/// The statements of a log and their plans.
pub fn seen(log: &str) -> Vec<(String, Seen)> {
    let mut found = Vec::new();
    for entry in log.split("  plan:\n").skip(1) {
        // The lines that follow the first of an entry begin with a tab.
        let lines: Vec<&str> = entry.lines().take_while(|l| l.starts_with('\t')).collect();
        let entry: Value = serde_json::from_str(&lines.join("\n")).unwrap();
        let plan = &entry["Plan"];
        let mut seen = Seen {
            rows: 0.0,
            blocks: ["Shared Hit Blocks", "Shared Read Blocks"]
                .iter()
                .filter_map(|key| plan[key].as_f64())
                .sum(),
            scans: Vec::new(),
            is_sequential: false,
            text: serde_json::to_string_pretty(plan).unwrap(),
        };
        seen.visit(plan);
        found.push((plain(entry["Query Text"].as_str().unwrap()), seen));
    }
    found
}

/// Every statement that reads or writes a table that grows, as the sources have it, but for those of
/// [`READ_ALL`].
pub fn statements_of_the_sources() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let mut statements = Vec::new();
    for name in ["", "/sql"] {
        for entry in std::fs::read_dir(format!("{folder}{name}")).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            if READ_ALL.iter().any(|file| path.ends_with(file)) {
                continue;
            }
            if path.extension().is_some_and(|e| e == "sql") {
                statements.push(plain(&text));
                continue;
            }
            let literals = text.split('"').map(plain);
            let is_sql = |text: &String| {
                let words = [
                    "SELECT ",
                    "INSERT INTO ",
                    "UPDATE ",
                    "DELETE FROM ",
                    "WITH ",
                ];
                words.iter().any(|word| text.starts_with(word))
            };
            statements.extend(literals.filter(is_sql));
        }
    }
    // Whole parts of a statement that is put together are looked for as they are.
    let about_tables = |sql: &String| GROWING.iter().any(|t| sql.split(' ').any(|w| w == *t));
    statements.retain(about_tables);
    statements
}
