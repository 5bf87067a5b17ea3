//! Chunks of texts of all kinds: where they are cut, and that nothing is lost.

#![allow(clippy::unwrap_used)]

use super::*;

const SIZES: Sizes = Sizes {
    chunk: 100,
    overlap: 20,
};

fn parts(chunks: &[Chunk]) -> Vec<(&str, &str)> {
    let parts = chunks.iter();
    parts
        .map(|chunk| (chunk.title.as_deref().unwrap_or(""), &*chunk.text))
        .collect()
}

#[test]
fn headings_are_titles() {
    let text = "Before.\n\n# Install #\n\n## Linux\nUse the package.\n\n## C#\n\n### Old\ntext\n\
                Setext\n------\nunder it\n\n# Empty\n";
    assert_eq!(
        parts(&markdown(text, SIZES)),
        [
            ("", "Before."),
            ("Install > Linux", "Use the package."),
            ("Install > C# > Old", "text\nSetext\n------\nunder it"),
            ("Empty", "Empty"),
        ]
    );
    let setext = "Title\n=====\nbody\n\nPart\n---\nmore\n\n---\n\nlast";
    assert_eq!(
        parts(&markdown(setext, SIZES)),
        [("Title", "body"), ("Title > Part", "more\n\n---\n\nlast")]
    );
}

#[test]
fn a_heading_in_code_is_code() {
    let text = "# A\n```sh\n# no heading\n\nrun\n```\n~~~\n# none\n```\n~~~\n# B\nx";
    assert_eq!(
        parts(&markdown(text, SIZES)),
        [
            (
                "A",
                "```sh\n# no heading\n\nrun\n```\n\n~~~\n# none\n```\n~~~"
            ),
            ("B", "x")
        ]
    );
    // A fence that is never closed goes on to the end; settings at the beginning are no heading.
    assert_eq!(parts(&markdown("```\n# a", SIZES)), [("", "```\n# a")]);
    let front = "---\ntitle: x\n---\n# A\nb";
    assert_eq!(
        parts(&markdown(front, SIZES)),
        [("", "---\ntitle: x\n---"), ("A", "b")]
    );
}

#[test]
fn paragraphs_stay_whole_if_they_fit() {
    let (a, b) = ("a".repeat(60), "b".repeat(60));
    let text = format!("{a}\r\n\r\nshort\n \n{b}\n\n\n");
    let chunks = plain(
        &text,
        Sizes {
            chunk: 100,
            overlap: 0,
        },
    );
    assert_eq!(parts(&chunks), [("", &*format!("{a}\n\nshort")), ("", &*b)]);
}

#[test]
fn what_is_too_long_is_cut_at_sentences_and_repeats_a_little() {
    let text = "One sentence is here. Another one follows it right away. And a third one stands \
                behind both of them. The fourth ends it.";
    let chunks = plain(
        text,
        Sizes {
            chunk: 90,
            overlap: 40,
        },
    );
    assert_eq!(
        parts(&chunks),
        [
            (
                "",
                "One sentence is here. Another one follows it right away."
            ),
            (
                "",
                "follows it right away. And a third one stands behind both of them. The fourth ends it."
            ),
        ]
    );
    let many: Vec<String> = (0..20)
        .map(|n| format!("Sentence {n} is so long."))
        .collect();
    let chunks = plain(
        &many.join("\n\n"),
        Sizes {
            chunk: 100,
            overlap: 40,
        },
    );
    for pair in chunks.windows(2) {
        let first = pair[1].text.split("\n\n").next().unwrap();
        assert!(pair[0].text.ends_with(first), "{pair:?}");
    }
}

#[test]
fn nothing_is_lost_and_nothing_is_too_long() {
    let words =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    let texts = [
        "word ".repeat(1000),
        "東京。".repeat(500),
        "x".repeat(5000),
        "👩‍🚀".repeat(400),
        "a b\n".repeat(700) + "\n\n# heading\n\n" + &"c. ".repeat(500),
    ];
    for text in &texts {
        for chunk in [100, 101, 102, 103, 250] {
            let none = plain(text, Sizes { chunk, overlap: 0 });
            let joined: String = none
                .iter()
                .map(|c| c.text.as_str())
                .collect::<Vec<_>>()
                .join(" ");
            let bare = |text: &str| words(text).concat();
            assert_eq!(bare(&joined), bare(text));
            for overlap in [0, 30, 1000] {
                for cut in [plain, markdown] {
                    let chunks = cut(text, Sizes { chunk, overlap });
                    assert!(
                        chunks
                            .iter()
                            .all(|c| c.text.len() <= chunk && !c.text.trim().is_empty())
                    );
                    assert_eq!(chunks, cut(text, Sizes { chunk, overlap }));
                }
            }
        }
    }
    for nothing in ["", " \n\t\n", "\n\n\n"] {
        assert!(plain(nothing, SIZES).is_empty());
        assert!(markdown(nothing, SIZES).is_empty());
    }
}

#[test]
fn a_title_has_its_limit() {
    let text = format!("# {}\n\ntext", "ü".repeat(2000));
    let chunks = markdown(&text, SIZES);
    assert!(chunks[0].title.as_ref().unwrap().len() <= LABEL_LIMIT_BYTES);
}
