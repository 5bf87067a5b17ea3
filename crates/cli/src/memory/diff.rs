//! `dalsegno memory diff`: what changed between two versions, each document once.
//!
//! Invariant: what was added and ended in between is no difference; a document that was corrected
//! three times is one difference, from what it was to what it is. What was forgotten in between is
//! one, also if it had ended before.

use std::collections::BTreeMap;

use dalsegno_memory::{AsOf, Changed, Content, DocId, Memory};
use serde::Serialize;

use super::history::content;
use super::shape::{self, ContentShape, VersionShape};
use super::{opening, when};
use crate::args::Global;
use crate::args::memory::look::Diff;
use crate::exit::{Error, Exit, Result};
use crate::output::style::Style;
use crate::output::{Out, size};

/// `dalsegno.memory-diff/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    memory: &'a str,
    from: VersionShape,
    to: VersionShape,
    same: bool,
    differences: Vec<DifferenceShape<'a>>,
}

#[derive(Serialize)]
struct DifferenceShape<'a> {
    what: &'static str,
    old: Option<SideShape<'a>>,
    new: Option<SideShape<'a>>,
}

#[derive(Serialize)]
struct SideShape<'a> {
    id: u64,
    /// `null` if it is forgotten.
    content: Option<ContentShape<'a>>,
}

/// What became of the documents of one version in another.
#[derive(Debug, Default, PartialEq, Eq)]
struct Net {
    /// Documents that are new.
    added: Vec<DocId>,
    /// Documents that are there no more, or others instead, and whether they are forgotten.
    ended: BTreeMap<DocId, (Option<DocId>, bool)>,
}

impl Net {
    /// Of what happened after a version.
    fn of(from: u64, changes: impl IntoIterator<Item = Changed>) -> Net {
        let mut net = Net::default();
        // Documents that are there now, by what they were in the first version; `None` for new ones.
        let mut was: BTreeMap<DocId, Option<DocId>> = BTreeMap::new();
        for change in changes {
            match change {
                Changed::Added(id) => drop(was.insert(id, None)),
                Changed::Corrected { old, new } => {
                    let first = was.remove(&old).unwrap_or(Some(old));
                    was.insert(new, first);
                    if let Some(first) = first {
                        net.ended.insert(first, (Some(new), false));
                    }
                }
                Changed::Retracted(id) => net.end(from, &mut was, id, false),
                Changed::Forgotten(ids) => {
                    for id in ids {
                        net.end(from, &mut was, id, true);
                    }
                }
                _ => {}
            }
        }
        let new = was.iter().filter(|(_, first)| first.is_none());
        net.added = new.map(|(id, _)| *id).collect();
        net
    }

    fn end(
        &mut self,
        from: u64,
        was: &mut BTreeMap<DocId, Option<DocId>>,
        id: DocId,
        forgotten: bool,
    ) {
        match (was.remove(&id), self.ended.get(&id)) {
            // New, and gone again.
            (Some(None), _) => {}
            (Some(Some(first)), _) => drop(self.ended.insert(first, (None, forgotten))),
            // Corrected since, and only the old text is forgotten: what is there instead stays.
            (None, Some(_)) => {}
            (None, None) if id.0 > from => {}
            (None, None) => drop(self.ended.insert(id, (None, forgotten))),
        }
    }
}

/// A difference with what was said.
struct Difference {
    what: &'static str,
    old: Option<(DocId, Option<Content>)>,
    new: Option<(DocId, Option<Content>)>,
}

/// Shows what changed.
///
/// # Errors
/// There is no such memory or version, or the store cannot be read.
pub fn run(args: &Diff, global: &Global, out: &mut Out) -> Result<Exit> {
    opening::read(global, &args.memory, async |memory| {
        let from = args.from.find(&memory).await?;
        let to = when::find(args.to, &memory).await?;
        if from.sequence > to.sequence {
            let (from, to) = (from.sequence, to.sequence);
            let what = format!("version {from} is later than version {to}");
            return Err(Error::usage(what).hint("name the earlier one first"));
        }
        let (after, until) = (AsOf::Version(from), AsOf::Version(to));
        let changes = memory.changes(after, until).await?;
        let net = Net::of(from.sequence, changes.into_iter().map(|change| change.what));
        let differences = differences(&net, &memory).await?;
        match out.is_json() {
            true => out.json(&Document {
                schema: "dalsegno.memory-diff/1",
                memory: &args.memory,
                from: from.into(),
                to: to.into(),
                same: differences.is_empty(),
                differences: differences.iter().map(difference_shape).collect(),
            })?,
            false => print(&differences, from.sequence, to.sequence, out)?,
        }
        Ok(match differences.is_empty() {
            true => Exit::Done,
            false => Exit::Failed,
        })
    })
}

async fn differences(net: &Net, memory: &Memory) -> Result<Vec<Difference>> {
    let mut found = Vec::new();
    for (old, (new, forgotten)) in &net.ended {
        let what = match (new, forgotten) {
            (Some(_), _) => "corrected",
            (None, true) => "forgotten",
            (None, false) => "retracted",
        };
        found.push(Difference {
            what,
            old: Some((*old, content(memory, *old).await?)),
            new: match new {
                Some(new) => Some((*new, content(memory, *new).await?)),
                None => None,
            },
        });
    }
    for new in &net.added {
        found.push(Difference {
            what: "added",
            old: None,
            new: Some((*new, content(memory, *new).await?)),
        });
    }
    Ok(found)
}

fn difference_shape(difference: &Difference) -> DifferenceShape<'_> {
    DifferenceShape {
        what: difference.what,
        old: difference.old.as_ref().map(side_shape),
        new: difference.new.as_ref().map(side_shape),
    }
}

fn side_shape((id, content): &(DocId, Option<Content>)) -> SideShape<'_> {
    SideShape {
        id: id.0,
        content: content.as_ref().map(ContentShape::from),
    }
}

fn print(differences: &[Difference], from: u64, to: u64, out: &mut Out) -> Result<()> {
    for difference in differences {
        for (sign, style, side) in [
            ("-", Style::Bad, &difference.old),
            ("+", Style::Good, &difference.new),
        ] {
            let Some((id, content)) = side else {
                continue;
            };
            let text = match content {
                Some(content) => shape::in_short(content),
                None => "(forgotten)".to_owned(),
            };
            let line = format!("{sign} {id}  {text}");
            out.line(out.paint(style, &line))?;
        }
    }
    let count = |what: &str| differences.iter().filter(|d| d.what == what).count() as u64;
    let counts = ["added", "corrected", "retracted", "forgotten"].map(|what| (count(what), what));
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let words = match counts.is_empty() {
        true => "no difference".to_owned(),
        false => counts.join(", "),
    };
    let events = size::count(to - from, "event");
    Ok(out.line(format!("{words} from version {from} to {to}, {events}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_and_went_is_no_difference() {
        let (old, id) = (DocId(1), DocId);
        let net = Net::of(
            4,
            [
                Changed::Added(id(5)),
                Changed::Retracted(id(5)),
                Changed::Added(id(7)),
                Changed::Corrected {
                    old: id(7),
                    new: id(8),
                },
                Changed::Corrected { old, new: id(9) },
                Changed::Corrected {
                    old: id(9),
                    new: id(10),
                },
                Changed::Forgotten(vec![old, id(9)]),
                Changed::Retracted(id(2)),
                Changed::Corrected {
                    old: id(3),
                    new: id(14),
                },
                Changed::Retracted(id(14)),
                Changed::Forgotten(vec![id(4)]),
            ],
        );
        assert_eq!(net.added, [id(8)]);
        let ended = [
            (id(1), (Some(id(10)), false)),
            (id(2), (None, false)),
            (id(3), (None, false)),
            (id(4), (None, true)),
        ];
        assert_eq!(net.ended, ended.into());
    }
}
