//! `dalsegno completions` and `dalsegno man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Print completions for a shell
///
/// Put them where your shell looks for them.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno completions bash > ~/.local/share/bash-completion/completions/dalsegno
  dalsegno completions zsh > ~/.zfunc/_dalsegno
  dalsegno completions fish > ~/.config/fish/completions/dalsegno.fish

Exit codes: 0 printed; 1 failed; 2 no such shell")]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Print the manual page
///
/// Of dalsegno, or of one of its commands; or write all of them into a folder.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  dalsegno man | man -l -
  dalsegno man ls | man -l -
  dalsegno man --dir ~/.local/share/man/man1

Exit codes: 0 printed; 1 failed; 2 no such command")]
pub struct Man {
    /// The command; dalsegno itself if none is named
    #[arg(value_name = "COMMAND")]
    pub page: Option<String>,
    /// Write all pages into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    pub dir: Option<PathBuf>,
}
