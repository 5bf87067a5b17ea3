//! `dalsegno man`: manual pages, made of the same words as the help.

use clap::{Command, CommandFactory};

use crate::args::Cli;
use crate::args::completions::Man;
use crate::exit::{Error, Exit, Result};
use crate::find;
use crate::output::Out;
use crate::output::text::shown;

/// Prints a page, or writes all.
///
/// # Errors
/// There is no such command, or a page cannot be written.
pub fn run(args: &Man, out: &mut Out) -> Result<Exit> {
    let mut cli = Cli::command();
    cli.build();
    if let Some(dir) = &args.dir {
        let failed = |e| Error::failed(format!("cannot write into {}: {e}", dir.display()));
        std::fs::create_dir_all(dir).map_err(failed)?;
        for (name, command) in pages(&cli) {
            std::fs::write(dir.join(format!("{name}.1")), page(name, command)?).map_err(failed)?;
        }
        return Ok(Exit::Done);
    }
    let wanted = match &args.page {
        None => "dalsegno".to_owned(),
        Some(command) => format!("dalsegno-{command}"),
    };
    let all = pages(&cli);
    let found = all.into_iter().find(|(name, _)| *name == wanted);
    let Some((name, command)) = found else {
        let asked = args.page.as_deref().unwrap_or_default();
        let error = Error::usage(format!("there is no command {:?}", shown(asked)));
        let near = find::nearest(asked, cli.get_subcommands().map(Command::get_name));
        return Err(match near {
            Some(near) => error.hint(format!("did you mean {near:?}?")),
            None => error.hint("`dalsegno --help` lists the commands"),
        });
    };
    out.raw(&page(name, command)?)?;
    Ok(Exit::Done)
}

/// The names of all pages, and what they are about.
fn pages(cli: &Command) -> Vec<(String, &Command)> {
    let mut pages = vec![("dalsegno".to_owned(), cli)];
    // Commands of commands come behind them.
    let mut at = 0;
    while at < pages.len() {
        let (name, command) = pages[at].clone();
        let inner = command.get_subcommands().filter(|c| c.get_name() != "help");
        pages.extend(inner.map(|c| (format!("{name}-{}", c.get_name()), c)));
        at += 1;
    }
    pages
}

fn page(name: String, command: &Command) -> Result<Vec<u8>> {
    // What every command shares is on the first page only once it is built in.
    let command = command.clone().disable_help_subcommand(true);
    let man = clap_mangen::Man::new(command).title(name);
    let mut page = Vec::new();
    man.render(&mut page)?;
    Ok(page)
}
