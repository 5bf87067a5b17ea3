//! BM25 as it stands in books, in floating point: what ours is compared with.
//!
//! Lucene's form: idf is ln(1 + (N - df + 0.5) / (df + 0.5)), lengths are exact. Words come from the
//! same analyser as ours, so that only the formulas are compared.

use std::collections::HashMap;

use dalsegno_memory::Analyser;

/// An index of texts, in memory.
pub struct Textbook {
    analyser: Analyser,
    postings: HashMap<String, Vec<(usize, u32)>>,
    lengths: Vec<f64>,
    mean_length: f64,
}

impl Textbook {
    pub fn new<'t>(analyser: Analyser, texts: impl Iterator<Item = &'t str>) -> Textbook {
        let mut postings: HashMap<String, Vec<(usize, u32)>> = HashMap::new();
        let mut lengths = Vec::new();
        for (place, text) in texts.enumerate() {
            let mut length = 0.0;
            analyser.words(text, |word| {
                length += 1.0;
                let of_word = postings.entry(word.to_owned()).or_default();
                match of_word.last_mut() {
                    Some((last, count)) if *last == place => *count += 1,
                    _ => of_word.push((place, 1)),
                }
            });
            lengths.push(length);
        }
        let mean_length = lengths.iter().sum::<f64>() / lengths.len() as f64;
        Textbook {
            analyser,
            postings,
            lengths,
            mean_length,
        }
    }

    /// The places of the best texts, best first, the earlier one first where equal.
    pub fn search(&self, query: &str, k1: f64, b: f64, limit: usize) -> Vec<usize> {
        let mut scores = vec![0.0; self.lengths.len()];
        self.analyser.words(query, |word| {
            let Some(postings) = self.postings.get(word) else {
                return;
            };
            let (all, having) = (self.lengths.len() as f64, postings.len() as f64);
            let idf = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
            for (place, count) in postings {
                let count = f64::from(*count);
                let length = self.lengths[*place] / self.mean_length;
                scores[*place] += idf * count * (k1 + 1.0) / (count + k1 * (1.0 - b + b * length));
            }
        });
        let mut found: Vec<usize> = (0..scores.len())
            .filter(|place| scores[*place] > 0.0)
            .collect();
        found.sort_by(|x, y| scores[*y].total_cmp(&scores[*x]).then(x.cmp(y)));
        found.truncate(limit);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_words_and_short_texts_come_first() {
        let texts = [
            "oven oven bread",
            "a bread and a long text about bread",
            "salt",
        ];
        let book = Textbook::new(Analyser::default(), texts.into_iter());
        assert_eq!(book.search("bread", 1.2, 0.75, 10), [1, 0]);
        assert_eq!(book.search("oven bread", 1.2, 0.75, 10), [0, 1]);
        assert_eq!(book.search("pepper", 1.2, 0.75, 10), [0_usize; 0]);
    }
}
