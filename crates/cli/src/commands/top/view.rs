//! How the screen is drawn. Everything that comes from the store was escaped before it gets here, or
//! is escaped here.
//!
//! ```text
//! heading    the store, its owner, how many runs, how many need a person
//! list       the runs
//! details    of the selected run: why, or timeline
//! said       what became of the last order
//! keys
//! ```

use dalsegno::views::Listed;
use dalsegno_store::Status;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};

use super::app::{App, Tab};
use super::data::waits_for;
use super::dialog::Dialog;
use super::orders::Fate;
use crate::output::text::{columns, fit, shown};
use crate::output::time;

/// On less than this nothing can be read.
const SMALLEST: (u16, u16) = (40, 10);

/// How wide the names are in front of the page about a run.
const WHY_NAME: usize = 16;

const HELP: &[(&str, &str)] = &[
    ("↑ ↓ j k", "move; PgUp PgDn Home End too"),
    ("Enter", "give the details the whole screen, and back"),
    ("Tab", "why, or the timeline"),
    ("a", "approve what the run asks for"),
    ("d", "deny it, with a reason"),
    (
        "r",
        "resolve a step in doubt: it happened, it did not, fail",
    ),
    ("s", "send a signal"),
    ("c", "cancel the run and its children"),
    ("g", "let a run in attention try again"),
    ("/", "filter by name, agent, state or what it waits for"),
    ("Esc", "back; forget the filter"),
    ("q Ctrl-C", "leave"),
];

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        frame.render_widget("too small", area);
        return;
    }
    let rows = app.count().min(1000) as u16;
    let list = match app.is_open {
        true => Constraint::Length(0),
        false => Constraint::Length((rows + 1).clamp(2, (area.height - 3) / 2)),
    };
    let [heading, runs, details, said, keys] = Layout::vertical([
        Constraint::Length(1),
        list,
        Constraint::Min(3),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_heading(frame, app, heading);
    if !app.is_open {
        draw_runs(frame, app, runs);
    }
    draw_details(frame, app, details);
    draw_said(frame, app, said);
    draw_keys(frame, app, keys);
    if let Some(mut dialog) = app.dialog.take() {
        dialog.scroll = draw_dialog(frame, app, &dialog);
        app.dialog = Some(dialog);
    } else if app.help {
        draw_help(frame, app);
    }
}

/// A colour, if colours are wanted; what it means is always said in words or by weight too.
fn tint(app: &App, color: Color) -> Style {
    match app.color {
        true => Style::new().fg(color),
        false => Style::new(),
    }
}

fn warn(app: &App) -> Style {
    tint(app, Color::Yellow).add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn draw_heading(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let mut spans = vec![Span::styled("dalsegno top", bold()), Span::raw("  ")];
    let owner = match &app.owner {
        Some(owner) => format!("owned by {}", shown(owner)),
        None => "owned by nobody".to_owned(),
    };
    let runs = match app.runs.len() {
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    };
    let needs = match app.needing {
        0 => String::new(),
        1 => ", 1 needs a person".to_owned(),
        count => format!(", {count} need a person"),
    };
    let used = columns(&owner) + columns(&runs) + columns(&needs) + 18;
    let place = fit(&app.store, usize::from(area.width).saturating_sub(used));
    spans.push(Span::styled(place, dim()));
    spans.push(Span::raw(format!("  {runs}")));
    spans.push(Span::styled(needs, warn(app)));
    spans.push(Span::raw(format!("  {owner}")));
    frame.render_widget(Line::from(spans), area);
}

fn draw_runs(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    if app.count() == 0 {
        let words = match app.runs.is_empty() {
            true => "no runs yet",
            false => "no run has this in it: Esc forgets the filter",
        };
        frame.render_widget(Line::styled(words, dim()), area);
        return;
    }
    // Only what is on the screen is made: the list may be long.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let at = app.at().unwrap_or(0);
    let most = app.count().saturating_sub(height);
    let first = app.first_row.clamp((at + 1).saturating_sub(height), at);
    app.first_row = first.min(most);
    let shown_runs: Vec<_> = app.rows(app.first_row, height).collect();
    let heading = ["RUN", "AGENT", "STATUS", "AGE", "CHANGED", "WAITS FOR"];
    let longest = |of: fn(&Listed) -> usize, least: usize, most: usize| {
        let lengths = shown_runs.iter().map(|run| of(run));
        lengths.max().unwrap_or(0).clamp(least, most) as u16
    };
    let third = usize::from(area.width) / 3;
    let name = longest(|run| columns(run.info.run.name()), 6, third);
    let agent = |run: &Listed| columns(run.info.agent.as_deref().unwrap_or("-"));
    let widths = [
        Constraint::Length(name),
        Constraint::Length(longest(agent, 5, 12)),
        Constraint::Length(12),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Fill(1),
    ];
    let rows = shown_runs
        .iter()
        .map(|run| row(run, app, usize::from(name)));
    let table = Table::new(rows, widths)
        .header(Row::new(heading).style(dim()))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let selected = app.at().map(|at| at - app.first_row);
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
}

fn row<'a>(run: &Listed, app: &App, width: usize) -> Row<'a> {
    let info = &run.info;
    let (status, style) = match run.needs_person() {
        true => ("needs person".to_owned(), warn(app)),
        false => (info.status.to_string(), status_style(app, info.status)),
    };
    Row::new([
        Cell::new(fit(&shown(info.run.name()), width)),
        Cell::new(fit(&shown(info.agent.as_deref().unwrap_or("-")), 12)),
        Cell::new(status).style(style),
        Cell::new(time::age(info.created_us, app.now_us)),
        Cell::new(time::age(info.updated_us, app.now_us)),
        Cell::new(shown(&waits_for(run))),
    ])
}

fn status_style(app: &App, status: Status) -> Style {
    match status {
        Status::Running => tint(app, Color::Cyan),
        Status::Completed => tint(app, Color::Green),
        Status::Failed => tint(app, Color::Red),
        Status::Cancelled => dim(),
        _ => Style::new(),
    }
}

fn draw_details(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let name = app.selected.as_deref().unwrap_or("-");
    let tab = |tab: Tab, word: &'static str| match app.tab == tab {
        true => Span::styled(word, bold()),
        false => Span::styled(word, dim()),
    };
    let title = Line::from(vec![
        Span::raw(" "),
        Span::styled(fit(&shown(name), 40), bold()),
        Span::raw("  "),
        tab(Tab::Why, "why"),
        Span::raw(" "),
        tab(Tab::Timeline, "timeline"),
        Span::raw(" "),
    ]);
    let block = Block::bordered().title(title);
    let inside = block.inner(area);
    let width = usize::from(inside.width);
    let lines: Vec<Line<'_>> = match &app.detail {
        Some(detail) if Some(&detail.run) == app.selected.as_ref() => match app.tab {
            Tab::Why => detail
                .why
                .iter()
                .flat_map(|l| why_lines(l, width))
                .collect(),
            Tab::Timeline => detail.timeline.iter().map(|l| Line::raw(&**l)).collect(),
        },
        _ => Vec::new(),
    };
    let hidden = lines.len().saturating_sub(usize::from(inside.height));
    let scroll = app.scroll.min(u16::try_from(hidden).unwrap_or(u16::MAX));
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)), inside);
    app.scroll = scroll;
}

/// A line of the page, with the name in front of a group made to stand out, over as many lines as it
/// needs, each under the first.
fn why_lines(line: &str, width: usize) -> Vec<Line<'_>> {
    let (name, rest) = match line.split_at_checked(WHY_NAME) {
        Some((name, rest)) if !line.starts_with("run ") => (name, rest),
        _ => ("", line),
    };
    let pieces = wrap(rest, width.saturating_sub(name.len()).max(8));
    let pieces = pieces.into_iter().enumerate();
    pieces
        .map(|(at, piece)| {
            let name = match at {
                0 => Span::styled(name, dim()),
                _ => Span::raw(" ".repeat(name.len())),
            };
            Line::from(vec![name, Span::raw(piece)])
        })
        .collect()
}

/// Over lines of at most so many columns, at blanks where there are some.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut push = |word: &str| {
        let last = lines.last_mut();
        let is_full = |line: &String| !line.is_empty() && columns(line) + columns(word) > width;
        match last {
            Some(line) if !is_full(line) => line.push_str(word),
            _ => lines.push(word.trim_start().to_owned()),
        }
    };
    for word in text.split_inclusive(' ') {
        match columns(word) > width {
            // Too long for any line: letter by letter.
            true => word.chars().for_each(|c| push(c.encode_utf8(&mut [0; 4]))),
            false => push(word),
        }
    }
    lines
}

fn draw_said(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let mut spans = Vec::new();
    if app.is_typing || !app.filter.is_empty() {
        let cursor = if app.is_typing { "▏" } else { "" };
        let filter = format!("/{}{cursor}  ", shown(&app.filter));
        spans.push(Span::styled(filter, bold()));
    }
    if let Some(trouble) = &app.trouble {
        let words = format!("the store cannot be read now: {trouble}");
        let style = tint(app, Color::Red).add_modifier(Modifier::BOLD);
        spans.push(Span::styled(words, style));
    } else if let Some(notice) = &app.notice {
        spans.push(Span::raw(notice.as_str()));
    } else if let Some((words, fate)) = app.last_said() {
        let style = match fate {
            Fate::Sending | Fate::Waiting => warn(app),
            Fate::Taken(_) => tint(app, Color::Green),
            Fate::Refused(_) => tint(app, Color::Red),
        };
        spans.push(Span::styled(words, style));
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_keys(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let keys = match () {
        () if app.dialog.is_some() => "",
        () if app.is_typing => "Enter keep  Esc forget",
        () => "a approve  d deny  r resolve  s signal  c cancel  / filter  ? help  q quit",
    };
    frame.render_widget(Line::styled(keys, dim()), area);
}

/// A box in the middle, at most so large.
fn middle(frame: &mut Frame<'_>, width: u16, height: u16) -> Rect {
    let area = frame.area();
    let (width, height) = (width.min(area.width), height.min(area.height));
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    place
}

/// Gives how far it could be scrolled.
fn draw_dialog(frame: &mut Frame<'_>, app: &App, dialog: &Dialog) -> u16 {
    let body = dialog.body();
    let inputs = dialog.inputs();
    let area = frame.area();
    let width = area.width.saturating_sub(4).min(100);
    let inner = usize::from(width.saturating_sub(4)).max(1);
    let body: Vec<_> = body.iter().flat_map(|line| wrap(line, inner)).collect();
    let frame_lines = inputs.len() as u16 + 4;
    let wanted = u16::try_from(body.len()).unwrap_or(u16::MAX);
    let height = wanted.saturating_add(frame_lines);
    let place = middle(frame, width, height.min(area.height.saturating_sub(2)));
    let title = Line::styled(format!(" {} ", fit(&dialog.title(), inner)), warn(app));
    let keys = Line::styled(format!(" {} ", dialog.keys()), bold());
    let block = Block::bordered().title(title).title_bottom(keys);
    let inside = block.inner(place).inner(Margin::new(1, 0));
    frame.render_widget(block, place);
    let [above, below] =
        Layout::vertical([Constraint::Min(1), Constraint::Length(inputs.len() as u16)])
            .areas(inside);
    let hidden = wanted.saturating_sub(above.height);
    let scroll = dialog.scroll.min(hidden);
    let text = body.into_iter().map(Line::raw).collect::<Vec<_>>();
    frame.render_widget(Paragraph::new(text).scroll((scroll, 0)), above);
    if scroll < hidden {
        let more = Line::styled(format!(" ↓ {} more lines ", hidden - scroll), warn(app));
        let at = Rect {
            y: above.y + above.height.saturating_sub(1),
            height: 1,
            ..above
        };
        frame.render_widget(Clear, at);
        frame.render_widget(more, at);
    }
    for (at, (name, text, has_cursor)) in inputs.into_iter().enumerate() {
        let line = Rect {
            y: below.y + at as u16,
            height: 1,
            ..below
        };
        let cursor = if has_cursor { "▏" } else { "" };
        // The end is where it is written.
        let room = usize::from(line.width).saturating_sub(name.len() + 3);
        let skip = columns(&text).saturating_sub(room);
        let text: String = text.chars().skip(skip).collect();
        let spans = vec![
            Span::styled(format!("{name}: "), dim()),
            Span::styled(format!("{text}{cursor}"), bold()),
        ];
        frame.render_widget(Line::from(spans), line);
    }
    scroll
}

fn draw_help(frame: &mut Frame<'_>, app: &App) {
    let lines: Vec<_> = HELP
        .iter()
        .map(|(keys, what)| {
            Line::from(vec![
                Span::styled(format!("{keys:<9} "), bold()),
                Span::raw(*what),
            ])
        })
        .collect();
    let place = middle(frame, 72, lines.len() as u16 + 2);
    let title = Line::styled(" Keys ", warn(app));
    let keys = Line::styled(" any key goes back ", dim());
    let block = Block::bordered().title(title).title_bottom(keys);
    frame.render_widget(Paragraph::new(lines).block(block), place);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_at_blanks_or_anywhere() {
        assert_eq!(wrap("a short one", 20), ["a short one"]);
        assert_eq!(wrap("two words here", 10), ["two words ", "here"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("", 3), [""]);
        assert_eq!(wrap("東京都庁", 4), ["東京", "都庁"]);
    }
}
