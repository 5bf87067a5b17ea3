//! A collection with known answers, in the layout of BEIR, and how good an answer is.
//!
//! A folder with `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`, `text`) and
//! `qrels.tsv` or `qrels/test.tsv` (query, document, relevance).

use std::collections::HashMap;
use std::path::Path;

use dalsegno_memory::{QUERY_LIMIT_BYTES, TEXT_LIMIT_BYTES};
use serde_json::Value;

use crate::Error;

/// A document of a collection.
pub struct Text {
    pub id: String,
    pub title: String,
    pub text: String,
}

impl Text {
    /// Title and text of a document, as much as a memory takes.
    pub fn whole(&self) -> String {
        let whole = format!("{} {}", self.title, self.text);
        cut(whole.trim(), TEXT_LIMIT_BYTES).to_owned()
    }

    /// The words of a query, as much as a search takes.
    pub fn asked(&self) -> &str {
        cut(&self.text, QUERY_LIMIT_BYTES)
    }
}

fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1; // 0 is a boundary.
    }
    &text[..end]
}

/// Documents, queries, and which document is how relevant to which query.
pub struct Collection {
    pub documents: Vec<Text>,
    /// Only those that have a relevant document.
    pub queries: Vec<Text>,
    relevance: HashMap<String, HashMap<String, u32>>,
}

/// The mean over all queries.
#[derive(Clone, Copy, Debug)]
pub struct Quality {
    pub ndcg_at_10: f64,
    pub recall_at_100: f64,
}

impl Collection {
    pub fn read(folder: &Path) -> Result<Collection, Error> {
        let judged = [
            folder.join("qrels.tsv"),
            folder.join("qrels").join("test.tsv"),
        ];
        let judged = judged.iter().find(|path| path.exists()).ok_or_else(|| {
            format!(
                "{} has neither qrels.tsv nor qrels/test.tsv",
                folder.display()
            )
        })?;
        let relevance = read_relevance(&read(judged)?)?;
        let mut queries = read_texts(&folder.join("queries.jsonl"))?;
        queries.retain(|query| relevance.contains_key(&query.id));
        let documents = read_texts(&folder.join("corpus.jsonl"))?;
        let missing = match (documents.is_empty(), queries.is_empty()) {
            (true, _) => "documents",
            (_, true) => "queries with a relevant document",
            _ => {
                return Ok(Collection {
                    documents,
                    queries,
                    relevance,
                });
            }
        };
        Err(format!("{} has no {missing}", folder.display()).into())
    }

    /// How good answers are. Each is up to 100 places in `documents`, best first, one for each query.
    pub fn judge(&self, answers: &[Vec<usize>]) -> Quality {
        let (mut gain, mut recall) = (0.0, 0.0);
        for (query, answer) in self.queries.iter().zip(answers) {
            let relevant = &self.relevance[&query.id];
            let grade = |place: &usize| relevant.get(&self.documents[*place].id).copied();
            let found: Vec<u32> = answer
                .iter()
                .map(|place| grade(place).unwrap_or(0))
                .collect();
            gain += ndcg(&found, relevant);
            let hits = found.iter().take(100).filter(|grade| **grade > 0).count();
            recall += hits as f64 / relevant.len() as f64;
        }
        let count = self.queries.len() as f64;
        Quality {
            ndcg_at_10: gain / count,
            recall_at_100: recall / count,
        }
    }
}

fn ndcg(found: &[u32], relevant: &HashMap<String, u32>) -> f64 {
    let mut best: Vec<u32> = relevant.values().copied().collect();
    best.sort_unstable_by(|a, b| b.cmp(a));
    let gain = |grades: &[u32]| -> f64 {
        let discounted =
            |(rank, grade): (usize, &u32)| f64::from(*grade) / (rank as f64 + 2.0).log2();
        grades.iter().take(10).enumerate().map(discounted).sum()
    };
    gain(found) / gain(&best)
}

fn read(path: &Path) -> Result<String, Error> {
    let mut text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    // Some editors put a mark in front that is no part of the text.
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

fn read_relevance(text: &str) -> Result<HashMap<String, HashMap<String, u32>>, Error> {
    let mut relevance: HashMap<String, HashMap<String, u32>> = HashMap::new();
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    for (number, line) in lines.enumerate() {
        let wrong = || format!("not a judgement: {line}");
        let fields: Vec<&str> = line.split('\t').map(str::trim).collect();
        let [query, document, grade] = fields[..] else {
            return Err(wrong().into());
        };
        let grade: f64 = match grade.parse() {
            Ok(grade) => grade,
            // The first line may name the columns.
            Err(_) if number == 0 => continue,
            Err(_) => return Err(wrong().into()),
        };
        // Nought and below is not relevant. A cast saturates.
        let grade = grade.round() as u32;
        if grade > 0 {
            let of_query = relevance.entry(query.into()).or_default();
            of_query.insert(document.into(), grade);
        }
    }
    Ok(relevance)
}

/// Of several with the same id, the last counts.
fn read_texts(path: &Path) -> Result<Vec<Text>, Error> {
    let mut texts: Vec<Text> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (number, line) in read(path)?.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |why| format!("{}, line {}: {why}", path.display(), number + 1);
        let line: Value = serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?;
        let field = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        // Some collections have numbers.
        let id = match &line["_id"] {
            Value::Number(number) => number.to_string(),
            _ => field("_id"),
        };
        if id.is_empty() {
            return Err(wrong("there is no _id".into()).into());
        }
        let text = Text {
            id,
            title: field("title"),
            text: field("text"),
        };
        match places.get(&text.id) {
            Some(place) => texts[*place] = text,
            None => {
                places.insert(text.id.clone(), texts.len());
                texts.push(text);
            }
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(id: &str) -> Text {
        let (title, text) = (String::new(), String::new());
        Text {
            id: id.into(),
            title,
            text,
        }
    }

    #[test]
    fn a_perfect_answer_has_one_and_a_late_one_less() {
        let relevance = read_relevance("query-id\tcorpus-id\tscore\nq\ta\t2\nq\tb\t1\nq\tc\t0\n");
        let collection = Collection {
            documents: ["a", "b", "c", "d"].map(text).into(),
            queries: vec![text("q")],
            relevance: relevance.unwrap(),
        };
        let judge = |answer: &[usize]| collection.judge(&[answer.to_vec()]);
        let perfect = judge(&[0, 1, 2]);
        assert_eq!((perfect.ndcg_at_10, perfect.recall_at_100), (1.0, 1.0));
        // b alone, in the second place: (1 / log2 3) / (2 + 1 / log2 3).
        let late = judge(&[3, 1]);
        assert!((late.ndcg_at_10 - 0.239_81).abs() < 1e-4, "{late:?}");
        assert_eq!(late.recall_at_100, 0.5);
        assert_eq!(judge(&[]).ndcg_at_10, 0.0);
    }

    #[test]
    fn ids_may_be_numbers_and_lines_may_be_blank() {
        let folder = std::env::temp_dir().join(format!("dalsegno-beir-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("qrels")).unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        put(
            "corpus.jsonl",
            "{\"_id\": 7, \"text\": \"seven\"}\n\n{\"_id\": \"8\", \"title\": \"\"}\n\n",
        );
        put("queries.jsonl", "{\"_id\": 1, \"text\": \"which\"}\n");
        put("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\t7\t1\n\n");
        let collection = Collection::read(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(collection.documents.len(), 2);
        assert_eq!(collection.judge(&[vec![0]]).ndcg_at_10, 1.0);
    }

    #[test]
    fn a_line_that_is_no_judgement_is_shown() {
        for text in ["q a 1", "q\ta\t1\nq\tb\tyes", "q\ta\t1\t2"] {
            let wrong = read_relevance(text).unwrap_err().to_string();
            let line = text.lines().last().unwrap();
            assert_eq!(wrong, format!("not a judgement: {line}"));
        }
    }

    #[test]
    fn files_of_other_programs_are_read() {
        let folder = std::env::temp_dir().join(format!("dalsegno-beir2-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        // A mark of an editor, lines of another system, an id twice, nothing where text was.
        put(
            "corpus.jsonl",
            "\u{feff}{\"_id\": \"a\", \"title\": null, \"text\": \"old\"}\r\n\r\n\
             {\"_id\": \"b\"}\r\n{\"_id\": \"a\", \"text\": \"new\"}\r\n",
        );
        put(
            "queries.jsonl",
            "\u{feff}{\"_id\": \"q\", \"text\": \"which\"}\r\n",
        );
        // Grades as numbers with a point, and judgements of what is not there.
        put(
            "qrels.tsv",
            "\u{feff}q\ta\t2.0\r\nq\tb\t0\r\nq\tx\t1.0\r\nother\ta\t-1\r\n",
        );
        let collection = Collection::read(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let texts: Vec<String> = collection.documents.iter().map(Text::whole).collect();
        assert_eq!(texts, ["new", ""]);
        let quality = collection.judge(&[vec![0, 1]]);
        assert_eq!(quality.recall_at_100, 0.5);
        // 2 in the first place; the best would be 1 in the second, too.
        let best = 2.0 + 1.0 / 3_f64.log2();
        assert!((quality.ndcg_at_10 - 2.0 / best).abs() < 1e-12);
    }

    #[test]
    fn what_is_longer_than_a_memory_takes_is_cut() {
        let long = Text {
            text: "ä".repeat(3 << 20),
            ..text("long")
        };
        assert!(long.whole().len() <= TEXT_LIMIT_BYTES);
        assert!(long.asked().len() <= QUERY_LIMIT_BYTES);
    }
}
