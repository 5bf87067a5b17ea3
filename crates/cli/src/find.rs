//! Finding what a person named, and saying what may have been meant if there is no such thing.

use dalsegno_store::{Store, StreamId, StreamKind, Version};

use crate::exit::{Error, Result};
use crate::output::text::shown;

/// Names less alike than this are not what was meant.
const ALIKE: f64 = 0.75;

/// A run that there is, with its last event.
///
/// # Errors
/// There is none of this name: the nearest one is named.
pub async fn run(store: &dyn Store, name: &str) -> Result<(StreamId, Version)> {
    let id = StreamId::run(name)?;
    if let Some(head) = store.head(&id).await? {
        return Ok((id, head));
    }
    let all = store.streams(StreamKind::Run, None, 0).await?;
    let names = all.iter().map(|(id, _)| id.name());
    let error = Error::failed(format!("there is no run {name:?}"));
    Err(match nearest(name, names) {
        Some(near) => error.hint(format!("did you mean {:?}?", shown(near))),
        None if all.is_empty() => error.hint("the store has no runs yet"),
        None => error.hint("`dalsegno ls` lists the runs"),
    })
}

/// The name that is most like the one that was given, if one is like it at all.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|other| {
        let (a, b) = (name.to_lowercase(), other.to_lowercase());
        // Half a name is as good a sign as a slip of the finger.
        let starts = !a.is_empty() && b.starts_with(&a);
        (
            strsim::jaro_winkler(&a, &b) + f64::from(u8::from(starts)),
            other,
        )
    });
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(a.1)));
    best.filter(|(score, _)| *score >= ALIKE)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_found() {
        let known = ["order-42", "order-43", "report on whales"];
        assert_eq!(nearest("ordr-42", known), Some("order-42"));
        assert_eq!(nearest("Order-43", known), Some("order-43"));
        assert_eq!(nearest("report", known), Some("report on whales"));
        assert_eq!(nearest("xyz", known), None);
        assert_eq!(nearest("", []), None);
    }
}
