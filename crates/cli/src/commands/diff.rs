//! `dalsegno diff`: where two recorded runs first differ.

use dalsegno::{RunDiff, Side};
use serde::Serialize;

use crate::args::Global;
use crate::args::diff::Diff;
use crate::exit::{Exit, Result};
use crate::output::Out;
use crate::output::style::Style;
use crate::output::text::shown;
use crate::{find, open, runtime};

/// `dalsegno.diff/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    left: &'a str,
    right: &'a str,
    same: bool,
    same_steps: usize,
    difference: Option<DifferenceDocument>,
}

#[derive(Serialize)]
struct DifferenceDocument {
    kind: &'static str,
    left: SideDocument,
    right: SideDocument,
}

#[derive(Serialize)]
struct SideDocument {
    step: Option<String>,
    kind: Option<&'static str>,
    input: Option<String>,
    what: Option<String>,
    event: Option<u64>,
}

/// Compares two runs.
///
/// # Errors
/// There is no such run, or a store cannot be read.
pub fn run(args: &Diff, global: &Global, out: &mut Out) -> Result<Exit> {
    let left = open::reader(global)?;
    let right = match &args.other_store {
        Some(dir) => open::reader(&Global {
            store: dir.clone(),
            ..global.clone()
        })?,
        None => left.clone(),
    };
    let diff = runtime::block_on(async {
        find::run(&*left, &args.left).await?;
        find::run(&*right, &args.right).await?;
        let left = dalsegno::timeline(&*left, &args.left, None).await?;
        let right = dalsegno::timeline(&*right, &args.right, None).await?;
        Ok(dalsegno::diff(&left, &right))
    })?;
    match out.is_json() {
        true => out.json(&document(args, &diff))?,
        false => print(args, &diff, out)?,
    }
    Ok(match diff.difference {
        None => Exit::Done,
        Some(_) => Exit::Failed,
    })
}

fn document<'a>(args: &'a Diff, diff: &RunDiff) -> Document<'a> {
    let side = |side: &Side| SideDocument {
        step: side.step.as_ref().map(ToString::to_string),
        kind: side.kind.map(dalsegno::StepKind::word),
        input: side.input.clone(),
        what: side.what.clone(),
        event: side.event,
    };
    let difference = diff.difference.as_ref();
    Document {
        schema: "dalsegno.diff/1",
        left: &args.left,
        right: &args.right,
        same: difference.is_none(),
        same_steps: diff.same_steps,
        difference: difference.map(|found| DifferenceDocument {
            kind: found.kind.word(),
            left: side(&found.left),
            right: side(&found.right),
        }),
    }
}

fn print(args: &Diff, diff: &RunDiff, out: &mut Out) -> Result<()> {
    let same = diff.same_steps;
    let Some(found) = &diff.difference else {
        return Ok(out.line(format!("the same: {same} steps and the end"))?);
    };
    out.line(format!(
        "the same for {same} steps, then another {}:",
        found.kind
    ))?;
    let sides = [
        (Style::Bad, '-', &args.left, &found.left),
        (Style::Good, '+', &args.right, &found.right),
    ];
    for (style, sign, name, side) in sides {
        let line = format!("{sign} {}: {}", shown(name), shown(&side.to_string()));
        let line = out.paint(style, &line);
        out.line(line)?;
    }
    Ok(())
}
