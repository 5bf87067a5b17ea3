//! `dalsegno recover`: what needs no agent's code after a crash, and what the program will do.

use dalsegno::{Planned, RecoveryAction};
use dalsegno_store::{LocalStore, Store};
use serde::Serialize;

use crate::args::Global;
use crate::args::recover::Recover;
use crate::exit::{Exit, Result};
use crate::open::{self, Opened};
use crate::output::style::Style;
use crate::output::text::shown;
use crate::output::{Out, size};
use crate::runtime;

/// `dalsegno.recover/1`
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    dry_run: bool,
    owner: Option<&'a str>,
    store: Option<Opening<'a>>,
    letters: Letters,
    runs: Vec<Row<'a>>,
}

/// What opening the store did.
#[derive(Serialize)]
struct Opening<'a> {
    clean: bool,
    replayed: u64,
    torn_bytes: u64,
    notices: &'a [String],
}

#[derive(Default, Serialize)]
struct Letters {
    waiting: u64,
    taken: u64,
    refused: Vec<String>,
    bad: Vec<String>,
}

#[derive(Serialize)]
struct Row<'a> {
    run: &'a str,
    agent: &'a str,
    action: &'a str,
    why: &'a str,
    next: Vec<String>,
    in_doubt: Vec<&'a str>,
    resources: &'a [String],
    to_do: &'a str,
}

/// Recovers what can be without agents, and says what comes of each run.
///
/// # Errors
/// The store is in use or cannot be read.
pub fn run(args: &Recover, global: &Global, out: &mut Out) -> Result<Exit> {
    let owner = open::owner_now(global);
    let store = match args.dry_run {
        true => open::any_reader(global)?,
        false => open::writer(global)?,
    };
    let mut letters = Letters::default();
    let planned = runtime::block_on(async {
        match args.dry_run {
            true => letters.waiting = store.letters_waiting(global).await?,
            false => letters = take_letters(&*store.store()).await?,
        }
        Ok(dalsegno::recovery_plan(&*store.store()).await?)
    })?;
    let opened = match &store {
        Opened::Folder(local) if !args.dry_run => Some(opened(local)),
        _ => None,
    };
    let document = Document {
        schema: "dalsegno.recover/1",
        dry_run: args.dry_run,
        owner: owner.as_deref().filter(|_| args.dry_run),
        store: opened,
        letters,
        runs: planned.iter().map(row).collect(),
    };
    match out.is_json() {
        true => out.json(&document)?,
        false => print(&document, &planned, out)?,
    }
    if !args.dry_run {
        store.close()?;
    }
    let person = planned.iter().any(needs_person);
    Ok(match person {
        true => Exit::NeedsPerson,
        false => Exit::Done,
    })
}

fn needs_person(run: &Planned) -> bool {
    let action = run.recovered.action;
    matches!(action, RecoveryAction::NeedsPerson | RecoveryAction::Broken)
}

async fn take_letters(store: &dyn Store) -> Result<Letters> {
    let taken = store.take_letters().await?;
    Ok(Letters {
        waiting: 0,
        taken: taken.taken.len() as u64,
        refused: taken.refused.into_iter().map(|(_, why)| why).collect(),
        bad: taken.bad.into_iter().map(|(file, _)| file).collect(),
    })
}

fn opened(store: &LocalStore) -> Opening<'_> {
    let opened = store.opened();
    Opening {
        clean: opened.clean,
        replayed: opened.replayed,
        torn_bytes: opened.torn.as_ref().map_or(0, |torn| torn.bytes),
        notices: &opened.notices,
    }
}

fn row(planned: &Planned) -> Row<'_> {
    let recovered = &planned.recovered;
    let doubts = planned.why.in_doubt.iter();
    Row {
        run: &recovered.run,
        agent: &recovered.agent,
        action: recovered.action.word(),
        why: &recovered.why,
        next: planned.why.next.iter().map(ToString::to_string).collect(),
        in_doubt: doubts.map(|doubt| &*doubt.step).collect(),
        resources: &planned.why.knew.resources,
        to_do: &planned.why.to_do,
    }
}

fn print(document: &Document<'_>, planned: &[Planned], out: &mut Out) -> Result<()> {
    if let Some(store) = &document.store {
        let how = match store.clean {
            true => "closed in order".to_owned(),
            false => format!(
                "not closed in order: {} read again, {} of a torn write cut off",
                size::count(store.replayed, "record"),
                size::bytes(store.torn_bytes)
            ),
        };
        out.line(format!("the store was {how}"))?;
        for notice in store.notices {
            out.line(format!("  {}", shown(notice)))?;
        }
    }
    let letters = &document.letters;
    if letters.waiting > 0 {
        let waiting = size::count(letters.waiting, "letter");
        out.line(format!(
            "{waiting} in the mailbox: taken up first, and may change what follows"
        ))?;
    }
    if letters.taken > 0 {
        out.line(format!("{} taken up", size::count(letters.taken, "letter")))?;
    }
    for why in &letters.refused {
        out.line(format!("a letter was refused: {}", shown(why)))?;
    }
    for file in &letters.bad {
        out.line(format!("no letter, set aside: {}", shown(file)))?;
    }
    if let Some(owner) = document.owner {
        let owner = shown(owner);
        out.line(format!(
            "{owner} owns the store now; this is what comes of its runs if it ends"
        ))?;
    }
    if planned.is_empty() {
        return Ok(out.line("no run is unfinished")?);
    }
    for run in planned {
        print_run(run, out)?;
    }
    Ok(out.line("the program that has the agents does this by itself when it opens the store")?)
}

fn print_run(planned: &Planned, out: &mut Out) -> Result<()> {
    let recovered = &planned.recovered;
    let (style, will) = match recovered.action {
        RecoveryAction::Resumed => (Style::Active, "goes on"),
        RecoveryAction::Started => (Style::Active, "starts"),
        RecoveryAction::StillWaiting => (Style::Plain, "waits on"),
        RecoveryAction::NeedsPerson => (Style::Warn, "needs a person"),
        _ => (Style::Bad, recovered.action.word()),
    };
    let will = out.paint(style, will);
    let (run, agent) = (shown(&recovered.run), shown(&recovered.agent));
    out.line(format!(
        "{run} of {agent} {will}: {}",
        shown(&recovered.why)
    ))?;
    if matches!(
        recovered.action,
        RecoveryAction::Resumed | RecoveryAction::Started
    ) {
        for next in &planned.why.next {
            out.line(format!("  next: {}", shown(&next.to_string())))?;
        }
        for resource in &planned.why.knew.resources {
            out.line(format!("  first looks at: {}", shown(resource)))?;
        }
    }
    let to_do = &planned.why.to_do;
    if needs_person(planned) && !to_do.is_empty() {
        out.line(format!("  to do: {}", shown(to_do)))?;
    }
    Ok(())
}
