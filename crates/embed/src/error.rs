//! What can go wrong, in words for the person who has to deal with it.

#[cfg(any(feature = "table", feature = "transformer"))]
use std::path::Path;
use std::path::PathBuf;

#[cfg(feature = "http")]
use std::time::Duration;

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file could not be read.
    #[error("{path}: cannot be read: {source}: check the folder of the model", path = path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A folder has not the one file that is needed.
    #[error("{folder}: has {found} files *.safetensors: leave the one with the weights", folder = folder.display())]
    NotOneMatrix {
        /// The folder.
        folder: PathBuf,
        /// How many it has.
        found: usize,
    },
    /// A file is larger than any that is expected.
    #[error("{path}: is larger than {limit_bytes} bytes: is this the file of a model?", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What would be accepted.
        limit_bytes: u64,
    },
    /// A file is not what it should be.
    #[error("{path}: {why}: get the model again, or another one", path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// More components are asked for than there are.
    #[error(
        "the vectors of this model have {available} components, not {asked}: ask for 1 to {available}"
    )]
    Dimensions {
        /// What was asked for.
        asked: usize,
        /// What the model has.
        available: usize,
    },
}

impl LoadError {
    #[cfg(any(feature = "table", feature = "transformer"))]
    pub(crate) fn invalid(path: &Path, why: impl Into<String>) -> LoadError {
        LoadError::Invalid {
            path: path.to_owned(),
            why: why.into(),
        }
    }
}

/// Reads a file that is not larger than a limit.
#[cfg(any(feature = "table", feature = "transformer"))]
pub(crate) fn read_file(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, LoadError> {
    use std::io::Read;

    let failed = |source| LoadError::Read {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that a file that grows or has no length is bounded, too.
    file.take(limit_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(LoadError::TooLarge {
            path: path.to_owned(),
            limit_bytes,
        });
    }
    Ok(bytes)
}

/// Why texts could not be embedded. Nothing is returned for any text of the call then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The text could not be divided into tokens.
    #[error(
        "text {text} cannot be divided into tokens: {why}: the tokenizer of the model does not take it, leave it out"
    )]
    Tokens {
        /// Which text of the call, from 0.
        text: usize,
        /// What the tokenizer says.
        why: String,
    },
    /// The model failed.
    #[error("the model failed on text {text}: {why}: check that all of its files are of one model")]
    Model {
        /// Which text of the call, from 0.
        text: usize,
        /// What the runtime says.
        why: String,
    },
    /// An embedder that is not of this crate failed.
    #[error("{why}")]
    Own {
        /// What it says: what happened, and what to do.
        why: String,
        /// Whether the same call may succeed later.
        is_temporary: bool,
    },
    /// There was no answer, or only a part of one.
    #[cfg(feature = "http")]
    #[error("{url}: {why}: check that the server runs and can be reached, then try again")]
    Unreachable {
        /// What was asked.
        url: String,
        /// What happened.
        why: String,
    },
    /// The answer took too long.
    #[cfg(feature = "http")]
    #[error("{url}: no answer within {timeout:?}: try again, with fewer texts or a longer timeout")]
    Timeout {
        /// What was asked.
        url: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// The server refused.
    #[cfg(feature = "http")]
    #[error("{url}: status {status}: {body}: {}", what_to_do(*status, *retry_after_s))]
    Status {
        /// What was asked.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The start of what the server says.
        body: String,
        /// In how many seconds to ask again, if the server says so.
        retry_after_s: Option<u64>,
    },
    /// The answer is larger than vectors of this size can be.
    #[cfg(feature = "http")]
    #[error(
        "{url}: the answer is larger than {limit_bytes} bytes: check the address and the dimensions"
    )]
    AnswerTooLarge {
        /// What was asked.
        url: String,
        /// What would be accepted.
        limit_bytes: u64,
    },
    /// The answer is not one of the embeddings API.
    #[cfg(feature = "http")]
    #[error(
        "{url}: not an answer of the embeddings API: {why}: check the address, which mostly ends with /v1"
    )]
    NotAnAnswer {
        /// What was asked.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The answer has not one vector for each text.
    #[cfg(feature = "http")]
    #[error(
        "{url}: {found} vectors for {expected} texts: the server does not do batches well, set the batch to 1"
    )]
    WrongCount {
        /// What was asked.
        url: String,
        /// How many texts were sent.
        expected: usize,
        /// How many vectors came.
        found: usize,
    },
    /// A vector has not the size that was said.
    #[cfg(feature = "http")]
    #[error(
        "{url}: a vector of {found} components, not of {expected}: set the dimensions of this model"
    )]
    WrongDimensions {
        /// What was asked.
        url: String,
        /// What was said when the embedder was made.
        expected: usize,
        /// What came.
        found: usize,
    },
    /// A component is null, or too large to be one.
    #[cfg(feature = "http")]
    #[error(
        "{url}: component {place} of the vector of text {text} is not a number: the model on the server is broken, or the text breaks it"
    )]
    NotANumber {
        /// What was asked.
        url: String,
        /// Which text of the call, from 0.
        text: usize,
        /// Which component, from 0.
        place: usize,
    },
}

impl EmbedError {
    /// Whether the same call may succeed later: the server is away, busy or broken.
    pub fn is_temporary(&self) -> bool {
        match self {
            EmbedError::Own { is_temporary, .. } => *is_temporary,
            #[cfg(feature = "http")]
            EmbedError::Unreachable { .. } | EmbedError::Timeout { .. } => true,
            #[cfg(feature = "http")]
            EmbedError::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            _ => false,
        }
    }
}

#[cfg(feature = "http")]
fn what_to_do(status: u16, retry_after_s: Option<u64>) -> String {
    match (status, retry_after_s) {
        (300..=399, _) => "give the address that the server sends to".into(),
        (401 | 403, _) => "check the API key".into(),
        (404, _) => "check the address, which mostly ends with /v1, and the model".into(),
        (413, _) => "send fewer or shorter texts".into(),
        (408 | 425 | 429 | 500.., Some(seconds)) => format!("try again in {seconds} s"),
        (408 | 425 | 429 | 500.., None) => "try again later".into(),
        _ => "check the model and the settings".into(),
    }
}
