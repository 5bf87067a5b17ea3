//! Documents for programs. Each has a `schema` such as `dalsegno.ls/1`; names in it stay as they
//! are, new ones may be added; docs/cli.md describes them. Times are microseconds since 1970.

use serde::Serialize;

/// A document on a line of its own.
pub fn line(document: &impl Serialize) -> String {
    match serde_json::to_string(document) {
        Ok(text) => text + "\n",
        // Our own documents have text keys and plain values only.
        Err(e) => format!(
            "{{\"schema\":\"dalsegno.error/1\",\"error\":{:?}}}\n",
            e.to_string()
        ),
    }
}
