//! Recorded answers of a small collection in several languages. They must not change: not with a
//! new version of this library, of Unicode or of a stemmer, and not with the machine.
//!
//! If a change is meant, it needs a new number of the analyser or of the formulas, so that what was
//! recorded under the old one is not compared. `DALSEGNO_RECORD=1` writes the file anew.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use common::*;
use dalsegno_memory::{AsOf, DocKind, Language, Memory, NewDocument, Query, RankingConfig, Vector};
use dalsegno_simdisk::SimDisk;

const COLLECTION: [(DocKind, &str, &str); 24] = [
    (
        DocKind::Fact,
        "Oven",
        "The oven takes twelve minutes to heat up to 220 degrees.",
    ),
    (
        DocKind::Fact,
        "Oven",
        "Heating an oven twice a day costs about two euros of electricity.",
    ),
    (
        DocKind::Constraint,
        "Allergies",
        "One guest is allergic to nuts; nothing with almonds, please.",
    ),
    (
        DocKind::Constraint,
        "",
        "Guests with allergies must be asked before the menu is printed.",
    ),
    (
        DocKind::Decision,
        "Menu",
        "We decided to serve bread baked in the morning and three cheeses.",
    ),
    (
        DocKind::Plan,
        "Friday",
        "Bake bread at six, print menus at nine, open the doors at noon.",
    ),
    (
        DocKind::Document,
        "Baking",
        "Bakers bake. Baking bread needs flour, water, salt and time. Bread is patient; \
        bakers rarely are. A baker's dozen of breads is thirteen breads.",
    ),
    (
        DocKind::Document,
        "Haus",
        "Die Häuser am Fluss wurden im Sommer gestrichen, das große Haus zuletzt.",
    ),
    (
        DocKind::Document,
        "Straße",
        "In der Straße stehen alte Bäume; STRASSE und Straße sind verschiedene Wörter.",
    ),
    (
        DocKind::Document,
        "Chevaux",
        "Les chevaux mangent de l’herbe, et le cheval blanc boit à la fontaine.",
    ),
    (
        DocKind::Document,
        "Café",
        "Le café ﬁnement moulu coûte 3,50 € — le ＣＡＦÉ, lui, est fermé le lundi.",
    ),
    (
        DocKind::Document,
        "Книги",
        "Книги лежат на столе, а одна книга упала под стол.",
    ),
    (
        DocKind::Document,
        "東京",
        "東京の朝は早い。パンを焼く人はもっと早い。",
    ),
    (
        DocKind::Document,
        "Ψωμί",
        "Το ψωμί ψήνεται στον φούρνο κάθε πρωί.",
    ),
    (DocKind::Document, "خبز", "الخبز يخبز في الفرن كل صباح."),
    (
        DocKind::Document,
        "Ekmek",
        "Ekmek her sabah fırında pişer; İstanbul'da fırınlar erken açılır.",
    ),
    (
        DocKind::Fact,
        "Numbers",
        "Order 42 has 3.14 kilograms of flour, invoice 2024-117, total 1,234.50.",
    ),
    (
        DocKind::Fact,
        "Code",
        "The function heat_oven(degrees) returns E_TOO_HOT above 300.",
    ),
    (DocKind::Fact, "", "x"),
    (
        DocKind::Plan,
        "Saturday",
        "Clean the oven, sharpen every knife, count the guests, rest.",
    ),
    (
        DocKind::Fact,
        "Salt",
        "Salt salt salt: the word comes three times, and salted once.",
    ),
    (
        DocKind::Fact,
        "Knife",
        "A dull knife is more dangerous than a sharp knife.",
    ),
    (
        DocKind::Document,
        "Long",
        "Bread and cheese and wine and bread and olives and bread and butter and honey and \
        bread and jam and coffee and bread and a long morning in the kitchen with the oven on and the guests asleep.",
    ),
    (
        DocKind::Decision,
        "Oven",
        "The old oven goes; the new oven comes on Monday.",
    ),
];

const QUERIES: [&str; 14] = [
    "oven",
    "heating the oven",
    "allergic guests nuts",
    "bake bread",
    "Häuser",
    "STRASSE straße",
    "cheval",
    "café finement",
    "книга",
    "東京 パン",
    "φούρνος ψωμί",
    "fırın ekmek istanbul",
    "3.14 heat_oven 2024",
    "bread bread salt the and",
];

/// A vector that follows from a text, by arithmetic that is the same everywhere.
fn vector(text: &str) -> Vector {
    let mut components = [0_i32; 32];
    for (at, byte) in text.bytes().enumerate() {
        components[(usize::from(byte) * 7 + at) % 32] += i32::from(byte % 11) - 5;
    }
    let components = components.iter().map(|c| (*c).clamp(-127, 127) as i8);
    Vector::from_i8(components.collect()).unwrap()
}

fn configs() -> Vec<(&'static str, RankingConfig)> {
    let mut all_words = RankingConfig::default().bm25(900, 400);
    all_words.analyser.english_stop_words = false;
    let mut shallow = RankingConfig::default().weights(1500, 500);
    shallow.depth = 5;
    shallow.fusion_k = 60;
    vec![
        ("default", RankingConfig::default()),
        ("none", RankingConfig::default().language(Language::None)),
        (
            "german",
            RankingConfig::default().language(Language::German),
        ),
        (
            "french",
            RankingConfig::default().language(Language::French),
        ),
        (
            "russian",
            RankingConfig::default().language(Language::Russian),
        ),
        ("all words", all_words),
        ("shallow", shallow),
    ]
}

async fn answers() -> String {
    let store = Arc::new(simulated(&SimDisk::new(1)));
    let memory = Memory::open(store, "golden").await.unwrap();
    for (kind, title, text) in COLLECTION {
        let new = NewDocument::new(kind, text).vector(vector(text));
        let new = if title.is_empty() {
            new
        } else {
            new.title(title)
        };
        memory.add(new).await.unwrap();
    }
    memory
        .correct(
            dalsegno_memory::DocId(1),
            NewDocument::fact("The new oven heats up in seven minutes."),
        )
        .await
        .unwrap();
    memory
        .retract(dalsegno_memory::DocId(20), "rain")
        .await
        .unwrap();
    let mut lines = String::new();
    for (name, config) in configs() {
        for text in QUERIES {
            for (form, query) in [
                ("words", Query::words(text)),
                ("both", Query::hybrid(text, vector(text))),
                ("vector", Query::vector(vector(text))),
            ] {
                for sequence in [24, 26] {
                    let query = query.clone().as_of(AsOf::Sequence(sequence)).limit(6);
                    let found = memory.search(&query, &config).await.unwrap();
                    let hits = found
                        .hits
                        .iter()
                        .map(|hit| format!("{}:{}", hit.id, hit.score));
                    let hits: Vec<String> = hits.collect();
                    writeln!(lines, "{name} {form} {sequence} {text}: {}", hits.join(" ")).unwrap();
                }
            }
        }
    }
    lines
}

#[test]
fn answers_are_as_recorded() {
    let found = block_on(answers());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/answers.txt");
    if std::env::var_os("DALSEGNO_RECORD").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap();
    for (found, recorded) in found.lines().zip(recorded.lines()) {
        assert_eq!(found, recorded);
    }
    assert_eq!(found.lines().count(), recorded.lines().count());
}
