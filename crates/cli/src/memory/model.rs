//! The model that makes vectors: loaded from a folder, and the one that the memory was begun with.
//!
//! | the memory has | `--model` | then |
//! |---|---|---|
//! | no vectors | none | words only |
//! | no vectors | a model | writing begins with it; searching is by words |
//! | vectors | none | searching is by words; writing is refused, unless `--no-vectors` says so |
//! | vectors of this model | it | both |
//! | vectors of another | another | refused, and both are named |

use std::path::Path;

use dalsegno_embed::{Embedder, StaticTable};
use dalsegno_memory::{Memory, NewDocument, Vector};

use crate::args::memory::ModelArg;
use crate::exit::{Error, Result};
use crate::output::text::shown;

/// A model that is loaded.
#[derive(Debug)]
pub struct Model {
    embedder: Box<dyn Embedder>,
    name: String,
}

impl Model {
    /// Its name and hash, as in `wordllama-256#3f1c0a9be2d84c77`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The vector of a text.
    ///
    /// # Errors
    /// The model failed.
    pub fn vector(&self, title: Option<&str>, text: &str) -> Result<Vector> {
        let whole = match title {
            Some(title) => format!("{title}\n{text}"),
            None => text.to_owned(),
        };
        let made = self.embedder.embed(&[&whole]);
        let mut made = made.map_err(|e| Error::failed(shown(&e.to_string())))?;
        let made = made.pop();
        let bytes = made.map_or(Vec::new(), |vector| vector.as_slice().to_vec());
        Ok(Vector::from_i8(bytes)?)
    }

    /// A document with its vector.
    ///
    /// # Errors
    /// The model failed.
    pub fn apply(&self, new: NewDocument, title: Option<&str>, text: &str) -> Result<NewDocument> {
        Ok(new.vector(self.vector(title, text)?).model(self.name()))
    }
}

/// The model to write with.
///
/// # Errors
/// It cannot be loaded, it is not that of the memory, or the memory has vectors and none is named.
pub async fn to_write(memory: &Memory, arg: &ModelArg) -> Result<Option<Model>> {
    match arg.folder() {
        Some(folder) => Ok(Some(load_for(memory, folder).await?)),
        None if arg.no_vectors => Ok(None),
        None => match memory.dimension().await? {
            None => Ok(None),
            Some(dimension) => {
                let made_by = match memory.model().await? {
                    Some(model) => format!("vectors of the model {}", shown(&model)),
                    None => format!("vectors of {dimension} dimensions"),
                };
                let what = format!("{} has {made_by}, and no model is named", stream(memory));
                Err(Error::usage(what).hint(
                    "name its folder with --model or in DALSEGNO_MODEL; --no-vectors adds it for \
                     words only",
                ))
            }
        },
    }
}

/// The model to search with; `None` if there is nothing to compare with.
///
/// # Errors
/// It cannot be loaded, or is not that of the memory.
pub async fn to_search(memory: &Memory, arg: &ModelArg) -> Result<Option<Model>> {
    match (arg.folder(), memory.dimension().await?) {
        (Some(folder), Some(_)) => Ok(Some(load_for(memory, folder).await?)),
        // It would be of no use, and is still no reason to take anything for a model.
        (Some(folder), None) if !folder.is_dir() => {
            let folder = shown(&folder.display().to_string());
            let what = format!("the model cannot be loaded: there is no folder {folder}");
            Err(Error::failed(what).hint("leave out --model to search by words"))
        }
        _ => Ok(None),
    }
}

async fn load_for(memory: &Memory, folder: &Path) -> Result<Model> {
    let embedder = load(folder)?;
    let name = embedder.id().to_string();
    let (dimension, known) = (memory.dimension().await?, memory.model().await?);
    let found = embedder.dimensions();
    let expected = match (known, dimension) {
        (Some(known), dimension) if known != name => {
            let dimension = dimension.unwrap_or(0);
            Some(format!("{} ({dimension} dimensions)", shown(&known)))
        }
        (None, Some(dimension)) if dimension != found => {
            Some(format!("a model of {dimension} dimensions"))
        }
        _ => None,
    };
    match expected {
        None => Ok(Model { embedder, name }),
        Some(expected) => {
            let name = shown(&name);
            let what = format!(
                "the vectors of {} are of {expected}, not of {name} ({found} dimensions)",
                stream(memory)
            );
            Err(Error::failed(what).hint("name the folder of that model with --model"))
        }
    }
}

fn stream(memory: &Memory) -> String {
    shown(&memory.stream().to_string())
}

/// Whether a folder has a transformer: its settings say how wide its layers are.
fn is_transformer(folder: &Path) -> bool {
    let settings = std::fs::read(folder.join("config.json")).ok();
    let settings = settings.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    settings.is_some_and(|settings: serde_json::Value| settings["hidden_size"].is_u64())
}

fn load(folder: &Path) -> Result<Box<dyn Embedder>> {
    let failed = |e: dalsegno_embed::LoadError| {
        Error::failed(format!(
            "the model cannot be loaded: {}",
            shown(&e.to_string())
        ))
    };
    if is_transformer(folder) {
        #[cfg(feature = "transformer")]
        return Ok(Box::new(
            dalsegno_embed::Transformer::open(folder).map_err(failed)?,
        ));
        #[cfg(not(feature = "transformer"))]
        return Err(Error::failed(format!(
            "{} has a transformer, and this dalsegno was built without them",
            shown(&folder.display().to_string())
        ))
        .hint("build it with the feature transformer, or name the folder of a static table"));
    }
    Ok(Box::new(StaticTable::open(folder).map_err(failed)?))
}
