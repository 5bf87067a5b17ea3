//! A collection with known answers, in the layout of BEIR, and how good an answer is.
//!
//! A folder with `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`, `text`) and
//! `qrels.tsv` or `qrels/test.tsv` (query, document, relevance).

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use crate::Error;

/// A document of a collection.
pub struct Text {
    pub id: String,
    pub title: String,
    pub text: String,
}

impl Text {
    /// Title and text.
    pub fn whole(&self) -> String {
        format!("{} {}", self.title, self.text).trim().to_owned()
    }
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
        match documents.is_empty() || queries.is_empty() {
            true => Err(format!("{} has no judged queries", folder.display()).into()),
            false => Ok(Collection {
                documents,
                queries,
                relevance,
            }),
        }
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
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()).into())
}

fn read_relevance(text: &str) -> Result<HashMap<String, HashMap<String, u32>>, Error> {
    let mut relevance: HashMap<String, HashMap<String, u32>> = HashMap::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [query, document, grade] = fields[..] else {
            return Err(format!("not a judgement: {line}").into());
        };
        // The first line may name the columns. Nought and below is not relevant.
        if let Ok(grade @ 1..) = grade.trim().parse() {
            let of_query = relevance.entry(query.into()).or_default();
            of_query.insert(document.into(), grade);
        }
    }
    Ok(relevance)
}

fn read_texts(path: &Path) -> Result<Vec<Text>, Error> {
    let mut texts = Vec::new();
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
        texts.push(Text {
            id,
            title: field("title"),
            text: field("text"),
        });
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
        let wrong = read_relevance("q a 1").unwrap_err();
        assert_eq!(wrong.to_string(), "not a judgement: q a 1");
    }
}
