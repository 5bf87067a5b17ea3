//! From text to the words that are compared: cut, folded, stemmed.
//!
//! 1. Cut into words by Unicode's rules (UAX #29). What has no letter and no digit is no word. There
//!    is no query language: operators, quotes and brackets only separate words.
//! 2. Folded: compatible forms made equal (NFKC), lower case by Unicode's full mapping, NFKC again.
//! 3. Words that every text has are left out, if a list is given.
//! 4. Stemmed by the rules of a language (Snowball), if one is given.
//!
//! Invariant: the same text gives the same words as long as [`Analyser::pins`] is the same. It names
//! everything that could change them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::OnceLock;

use dalsegno_store::Hash;
use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

/// The number of these rules, and of the stemmers: those of rust-stemmers 1.2.
const VERSION: u64 = 1;
/// Of a longer word only so many characters count.
const WORD_LIMIT_CHARS: usize = 64;

/// Words that nearly every English text has, in the order of their letters.
const ENGLISH_STOP_WORDS: &str = "a an and are as at be but by for from had has have he her his i if in into is it \
    its me my no not of on or our she so such that the their then there these they this to us was we were will with you your";

macro_rules! languages {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $word:literal, $algorithm:expr;)*) => {
        /// Whose rules words are stemmed by. Numbers are part of the format.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Language {
            $($(#[$doc])* $name,)*
        }

        impl Language {
            /// All of them.
            pub const ALL: &'static [Language] = &[$(Language::$name,)*];

            pub(crate) fn number(self) -> u64 {
                match self { $(Language::$name => $number,)* }
            }

            /// In a word, as in `english`.
            pub fn word(self) -> &'static str {
                match self { $(Language::$name => $word,)* }
            }

            fn algorithm(self) -> Option<Algorithm> {
                match self { $(Language::$name => $algorithm,)* }
            }
        }
    };
}

// A macro, because the enum, the numbers and the words must not drift apart.
languages! {
    /// Words are compared as they are.
    None = 0, "none", None;
    /// Arabic.
    Arabic = 1, "arabic", Some(Algorithm::Arabic);
    /// Danish.
    Danish = 2, "danish", Some(Algorithm::Danish);
    /// Dutch.
    Dutch = 3, "dutch", Some(Algorithm::Dutch);
    /// English.
    #[default]
    English = 4, "english", Some(Algorithm::English);
    /// Finnish.
    Finnish = 5, "finnish", Some(Algorithm::Finnish);
    /// French.
    French = 6, "french", Some(Algorithm::French);
    /// German.
    German = 7, "german", Some(Algorithm::German);
    /// Greek.
    Greek = 8, "greek", Some(Algorithm::Greek);
    /// Hungarian.
    Hungarian = 9, "hungarian", Some(Algorithm::Hungarian);
    /// Italian.
    Italian = 10, "italian", Some(Algorithm::Italian);
    /// Norwegian.
    Norwegian = 11, "norwegian", Some(Algorithm::Norwegian);
    /// Portuguese.
    Portuguese = 12, "portuguese", Some(Algorithm::Portuguese);
    /// Romanian.
    Romanian = 13, "romanian", Some(Algorithm::Romanian);
    /// Russian.
    Russian = 14, "russian", Some(Algorithm::Russian);
    /// Spanish.
    Spanish = 15, "spanish", Some(Algorithm::Spanish);
    /// Swedish.
    Swedish = 16, "swedish", Some(Algorithm::Swedish);
    /// Tamil.
    Tamil = 17, "tamil", Some(Algorithm::Tamil);
    /// Turkish.
    Turkish = 18, "turkish", Some(Algorithm::Turkish);
}

impl Language {
    /// The language of a word.
    pub fn from_word(word: &str) -> Option<Language> {
        let all = Language::ALL.iter().copied();
        { all }.find(|language| language.word() == word)
    }

    pub(crate) fn from_number(number: u64) -> Option<Language> {
        let all = Language::ALL.iter().copied();
        { all }.find(|language| language.number() == number)
    }
}

/// How text becomes words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Analyser {
    /// Whose rules words are stemmed by.
    pub language: Language,
    /// Whether words that nearly every English text has are left out. By default they are in
    /// English: answers are a little better without them on every setting that was measured.
    pub english_stop_words: bool,
}

impl Default for Analyser {
    fn default() -> Analyser {
        Analyser::of(Language::default())
    }
}

impl Analyser {
    /// The usual one for a language.
    pub fn of(language: Language) -> Analyser {
        Analyser {
            language,
            english_stop_words: language == Language::English,
        }
    }

    /// Everything that decides which words a text has, as bytes that are the same for the same
    /// words: rules, tables of Unicode, language, list of stop words.
    pub fn pins(&self) -> Vec<u8> {
        let (a, b, c) = char::UNICODE_VERSION;
        let tables = [
            unicode_segmentation::UNICODE_VERSION.0,
            unicode_segmentation::UNICODE_VERSION.1,
            u64::from(unicode_normalization::UNICODE_VERSION.0),
            u64::from(unicode_normalization::UNICODE_VERSION.1),
            u64::from(a),
            u64::from(b),
            u64::from(c),
        ];
        let numbers = [VERSION, self.language.number(), WORD_LIMIT_CHARS as u64];
        let mut bytes = Vec::new();
        for number in numbers.into_iter().chain(tables) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let list = match self.english_stop_words {
            true => Hash::of(ENGLISH_STOP_WORDS.as_bytes()),
            false => Hash::ZERO,
        };
        bytes.extend_from_slice(list.as_bytes());
        bytes
    }

    /// Gives the words of a text, in order, to a function.
    pub fn words(&self, text: &str, mut each: impl FnMut(&str)) {
        let stemmer = self.language.algorithm().map(Stemmer::create);
        for word in text.unicode_words() {
            let folded = fold(word);
            if self.english_stop_words && stop_words().contains(&*folded) {
                continue;
            }
            match &stemmer {
                Some(stemmer) => each(&stemmer.stem(&folded)),
                None => each(&folded),
            }
        }
    }
}

fn fold(word: &str) -> Cow<'_, str> {
    let word = match word.char_indices().nth(WORD_LIMIT_CHARS) {
        Some((end, _)) => &word[..end],
        None => word,
    };
    if word.is_ascii() {
        return match word.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(word.to_ascii_lowercase()),
            false => Cow::Borrowed(word),
        };
    }
    let lower = word.nfkc().collect::<String>().to_lowercase();
    Cow::Owned(lower.nfkc().collect())
}

fn stop_words() -> &'static HashSet<&'static str> {
    static WORDS: OnceLock<HashSet<&'static str>> = OnceLock::new();
    WORDS.get_or_init(|| ENGLISH_STOP_WORDS.split_whitespace().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(language: Language, text: &str) -> Vec<String> {
        let analyser = Analyser {
            language,
            english_stop_words: false,
        };
        let mut words = Vec::new();
        analyser.words(text, |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn text_is_cut_folded_and_stemmed() {
        for (language, text, expected) in [
            (Language::English, "Ovens, heating!", &["oven", "heat"][..]),
            (Language::None, "Ovens, heating!", &["ovens", "heating"]),
            (
                Language::German,
                "Die Häuser GROSS",
                &["die", "haus", "gross"],
            ),
            (Language::French, "les chevaux", &["le", "cheval"]),
            (Language::Russian, "книги", &["книг"]),
            (Language::None, "ﬁve ＡＢＣ Ⅳ", &["five", "abc", "iv"]),
            (
                Language::None,
                "東京 3.14 a_b",
                &["東", "京", "3.14", "a_b"],
            ),
            (Language::None, "(\"\") AND -x + * : ~", &["and", "x"]),
            (Language::English, "", &[]),
            (Language::English, "…—!?", &[]),
        ] {
            assert_eq!(words(language, text), expected, "{text}");
        }
        assert_eq!(words(Language::None, &"x".repeat(999))[0].len(), 64);
    }

    #[test]
    fn stop_words_are_left_out_and_pinned() {
        let with = Analyser::default();
        let mut found = Vec::new();
        with.words("The oven is in the kitchen", |word| {
            found.push(word.to_owned())
        });
        assert_eq!(found, ["oven", "kitchen"]);
        let without = Analyser {
            english_stop_words: false,
            ..with
        };
        assert_ne!(with.pins(), without.pins());
        assert!(!Analyser::of(Language::German).english_stop_words);
        let list: Vec<&str> = ENGLISH_STOP_WORDS.split_whitespace().collect();
        assert!(list.is_sorted());
    }

    #[test]
    fn every_language_has_one_number_and_one_word() {
        for language in Language::ALL {
            assert_eq!(Language::from_number(language.number()), Some(*language));
            assert_eq!(Language::from_word(language.word()), Some(*language));
        }
    }
}
