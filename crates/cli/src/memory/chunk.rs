//! Cutting a text into chunks: by headings, then by paragraphs, and only where one is too long inside
//! of it.
//!
//! ```text
//! file ─► sections (Markdown headings) ─► blocks (paragraphs, fenced code) ─► chunks
//! ```
//!
//! A chunk has as many whole blocks of one section as fit. A block that does not fit alone is cut at
//! the last line end, else sentence end, else blank in the second half of what fits, else between two
//! characters. The next chunk of the same section begins with the end of the one before, from a
//! sentence or a word on, if there is room.
//!
//! Invariants: the same text and sizes give the same chunks, on every machine. No chunk is longer
//! than asked for, or empty. All of the text but white space is in the chunks.

use dalsegno_memory::LABEL_LIMIT_BYTES;

/// How large chunks are, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// At most.
    pub chunk: usize,
    /// What a chunk repeats of the one before, at most.
    pub overlap: usize,
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The headings above it, as in `Install > Linux`.
    pub title: Option<String>,
    /// What it says.
    pub text: String,
}

/// Between two headings of a title.
const UNDER: &str = " > ";
/// Between two blocks of a chunk.
const GAP: &str = "\n\n";

/// Cuts Markdown.
pub fn markdown(text: &str, sizes: Sizes) -> Vec<Chunk> {
    let sections = sections(text);
    let mut chunks = Vec::new();
    for (at, section) in sections.iter().enumerate() {
        let title = section.title();
        // A heading without a text of its own is in the titles of what is under it, if anything is.
        let next = sections.get(at + 1);
        let is_parent = next.is_some_and(|next| next.headings.len() > section.headings.len());
        let alone = section.headings.last().map(|(_, heading)| *heading);
        let alone = alone.filter(|heading| !is_parent && !heading.is_empty());
        match (section.blocks.as_slice(), alone) {
            ([], Some(heading)) => pack(&[heading], title, sizes, &mut chunks),
            (blocks, _) => pack(blocks, title, sizes, &mut chunks),
        }
    }
    chunks
}

/// Cuts a text without headings.
pub fn plain(text: &str, sizes: Sizes) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    pack(&paragraphs(text), None, sizes, &mut chunks);
    chunks
}

/// What stands under a heading, up to the next one.
#[derive(Debug, Default)]
struct Section<'a> {
    /// With their levels, the uppermost first.
    headings: Vec<(usize, &'a str)>,
    blocks: Vec<&'a str>,
}

impl Section<'_> {
    fn title(&self) -> Option<String> {
        let named = self.headings.iter().map(|(_, heading)| *heading);
        let named: Vec<&str> = named.filter(|heading| !heading.is_empty()).collect();
        let mut title = named.join(UNDER);
        title.truncate(boundary(&title, LABEL_LIMIT_BYTES));
        (!title.is_empty()).then_some(title)
    }
}

/// What a line of Markdown is, as far as it matters here.
enum Line<'a> {
    Blank,
    Heading(usize, &'a str),
    /// A line of = or -, which makes a heading of the line above it.
    Underline(usize),
    Fence(char, usize),
    Text,
}

fn line_of(line: &str) -> Line<'_> {
    let text = line.trim();
    let indent = line.len() - line.trim_start_matches(' ').len();
    if text.is_empty() {
        return Line::Blank;
    }
    if indent > 3 {
        return Line::Text;
    }
    let run = |mark: char| text.len() - text.trim_start_matches(mark).len();
    if let (level @ 1..=6, rest) = (run('#'), text.trim_start_matches('#'))
        && (rest.is_empty() || rest.starts_with([' ', '\t']))
    {
        let heading = rest.trim();
        let bare = heading.trim_end_matches('#');
        let closed = bare.is_empty() || bare.ends_with([' ', '\t']);
        return Line::Heading(level, if closed { bare.trim_end() } else { heading });
    }
    for mark in ['`', '~'] {
        if run(mark) >= 3 {
            return Line::Fence(mark, run(mark));
        }
    }
    for (level, mark) in [(1, '='), (2, '-')] {
        if run(mark) == text.len() {
            return Line::Underline(level);
        }
    }
    Line::Text
}

/// Where a block is, and how many lines it has so far.
#[derive(Clone, Copy)]
struct Open {
    start: usize,
    lines: usize,
    fence: Option<(char, usize)>,
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut all = vec![Section::default()];
    let mut open: Option<Open> = None;
    let mut at = front_matter(text);
    if at > 0 {
        close(&mut all, text, Some(0), at);
    }
    for line in text[at..].split_inclusive('\n') {
        let (start, end) = (at, at + line.len());
        at = end;
        let kind = line_of(line);
        if let Some(Open {
            fence: Some((mark, length)),
            start: from,
            ..
        }) = open
        {
            let marks = line.trim();
            let closes =
                matches!(kind, Line::Fence(found, long) if found == mark && long >= length);
            if closes && marks.chars().all(|c| c == mark) {
                close(&mut all, text, Some(from), end);
                open = None;
            }
            continue;
        }
        match (kind, open) {
            (Line::Blank, _) => {
                close(&mut all, text, open.map(|open| open.start), start);
                open = None;
            }
            (Line::Heading(level, heading), _) => {
                close(&mut all, text, open.map(|open| open.start), start);
                open = None;
                begin(&mut all, level, heading);
            }
            (
                Line::Underline(level),
                Some(Open {
                    start: from,
                    lines: 1,
                    ..
                }),
            ) => {
                begin(&mut all, level, text[from..start].trim());
                open = None;
            }
            (Line::Fence(mark, length), _) => {
                close(&mut all, text, open.map(|open| open.start), start);
                open = Some(Open {
                    start,
                    lines: 1,
                    fence: Some((mark, length)),
                });
            }
            (_, None) => {
                open = Some(Open {
                    start,
                    lines: 1,
                    fence: None,
                })
            }
            (_, Some(before)) => {
                open = Some(Open {
                    lines: before.lines + 1,
                    ..before
                })
            }
        }
    }
    close(&mut all, text, open.map(|open| open.start), text.len());
    all
}

/// How long the settings are that some tools put between two lines of ---.
fn front_matter(text: &str) -> usize {
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim_end() == "---") else {
        return 0;
    };
    let mut at = first.len();
    for line in lines {
        at += line.len();
        if line.trim_end() == "---" {
            return at;
        }
    }
    0
}

fn begin<'a>(all: &mut Vec<Section<'a>>, level: usize, heading: &'a str) {
    let mut headings = all.last().map_or(Vec::new(), |last| last.headings.clone());
    headings.retain(|(above, _)| *above < level);
    headings.push((level, heading));
    all.push(Section {
        headings,
        blocks: Vec::new(),
    });
}

fn close<'a>(all: &mut [Section<'a>], text: &'a str, start: Option<usize>, end: usize) {
    let block = start.map_or("", |start| text[start..end].trim_end());
    if let (false, Some(last)) = (block.trim().is_empty(), all.last_mut()) {
        last.blocks.push(block);
    }
}

/// What stands between blank lines.
fn paragraphs(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        if line.trim().is_empty() {
            found.push(&text[start..at]);
            start = at + line.len();
        }
        at += line.len();
    }
    found.push(&text[start..]);
    let trimmed = found.into_iter().map(|block| block.trim_end());
    trimmed.filter(|block| !block.trim().is_empty()).collect()
}

/// Puts blocks of one section together into chunks.
fn pack(blocks: &[&str], title: Option<String>, sizes: Sizes, chunks: &mut Vec<Chunk>) {
    let mut text = String::new();
    // Whether there is more in it than what is repeated.
    let mut has_own = false;
    for (piece, is_rest) in blocks.iter().flat_map(|block| pieces(block, sizes.chunk)) {
        let fits = text.len() + GAP.len() + piece.len() <= sizes.chunk;
        if has_own && (is_rest || !fits) {
            let before = std::mem::take(&mut text);
            let room = sizes.chunk.saturating_sub(piece.len() + GAP.len());
            text.push_str(tail(&before, sizes.overlap.min(sizes.chunk / 2).min(room)));
            chunks.push(Chunk {
                title: title.clone(),
                text: before,
            });
        }
        if !text.is_empty() {
            text.push_str(if is_rest { " " } else { GAP });
        }
        text.push_str(piece);
        has_own = true;
    }
    if has_own {
        chunks.push(Chunk { title, text });
    }
}

/// A block as pieces that are short enough, and whether each goes on with the one before.
fn pieces(block: &str, limit: usize) -> impl Iterator<Item = (&str, bool)> {
    let mut rest = block;
    let mut is_rest = false;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = match rest.len() <= limit {
            true => rest.len(),
            false => cut(rest, limit),
        };
        let (piece, after) = rest.split_at(end);
        rest = after.trim_start();
        Some((piece.trim_end(), std::mem::replace(&mut is_rest, true)))
    })
    .filter(|(piece, _)| !piece.is_empty())
}

/// Where to cut a text that is longer than this.
fn cut(text: &str, limit: usize) -> usize {
    let end = boundary(text, limit);
    let (window, half) = (&text[..end], end / 2);
    let late = |at: &usize| *at > half;
    let line = window.rfind('\n').map(|at| at + 1).filter(late);
    let sentence = || sentence_ends(window).last().filter(late);
    let blank = || {
        let blank = window.rfind(char::is_whitespace);
        blank.filter(late)
    };
    line.or_else(sentence).or_else(blank).unwrap_or(end)
}

/// The places behind the ends of sentences.
fn sentence_ends(text: &str) -> impl Iterator<Item = usize> {
    let mut after = text.char_indices().skip(1).map(|(_, c)| c);
    text.char_indices().filter_map(move |(at, c)| {
        let next = after.next();
        let ends = match c {
            '.' | '!' | '?' => next.is_some_and(char::is_whitespace),
            '。' | '！' | '？' => true,
            _ => false,
        };
        ends.then_some(at + c.len_utf8())
    })
}

/// The end of a text from a sentence or a word on; nothing if there is none in so many bytes.
fn tail(text: &str, limit: usize) -> &str {
    if limit == 0 || text.len() <= limit {
        return "";
    }
    let mut start = text.len() - limit;
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let end = &text[start..];
    let sentence = sentence_ends(end).next();
    let begin = sentence.or_else(|| end.find(char::is_whitespace));
    begin.map_or("", |begin| end[begin..].trim_start())
}

/// The last place between two characters that is not beyond the limit.
fn boundary(text: &str, limit: usize) -> usize {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

#[cfg(test)]
mod tests;
