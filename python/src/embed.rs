//! Embedders: tables of the library, and functions in Python that are embedders to it.
//!
//! Invariant: who embeds has let go of the interpreter; a function in Python takes it for itself.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use dalsegno::{BoxFuture, Ctx, Result};
use dalsegno_embed::{
    EmbedError, Embedder, EmbedderId, StaticTable, TableOptions, TextLimit, Vector,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;
use serde_json::value::RawValue;

use crate::memory::{raw, refuse};
use crate::memory_given::Numbers;
use crate::memory_said;

/// An embedder, as Python has it.
#[pyclass(frozen, name = "Embedder")]
pub struct PyEmbedder(Arc<dyn Embedder>);

#[pymethods]
impl PyEmbedder {
    /// A table of word vectors, from a folder.
    #[staticmethod]
    fn table(
        py: Python<'_>,
        folder: PathBuf,
        dimensions: Option<usize>,
        name: Option<String>,
    ) -> PyResult<PyEmbedder> {
        let mut options = TableOptions::default();
        (options.dimensions, options.name) = (dimensions, name);
        let opened = py.detach(|| StaticTable::open_with(folder, options));
        match opened {
            Ok(table) => Ok(PyEmbedder(Arc::new(table))),
            Err(e) => Err(refuse(py, &e.to_string())),
        }
    }

    /// A function that is given texts, and gives the numbers of each; `version` says which one it is.
    #[staticmethod]
    fn own(call: Py<PyAny>, name: String, version: String, dimensions: usize) -> PyEmbedder {
        let decisive = [version.as_bytes(), &(dimensions as u64).to_le_bytes()];
        let id = EmbedderId::new(name, decisive);
        PyEmbedder(Arc::new(Own {
            call,
            id,
            dimensions,
        }))
    }

    /// Its name and a hash of all that decides its vectors.
    #[getter]
    fn id(&self) -> String {
        self.0.id().to_string()
    }

    #[getter]
    fn dimensions(&self) -> usize {
        self.0.dimensions()
    }

    /// The vectors of some texts.
    fn embed<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<String>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let made = py.detach(|| {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            self.0.embed(&texts)
        });
        let made = made.map_err(|e| refuse(py, &e.to_string()))?;
        let bytes = |vector: &Vector| {
            vector
                .as_slice()
                .iter()
                .map(|c| *c as u8)
                .collect::<Vec<_>>()
        };
        Ok(made
            .iter()
            .map(|vector| PyBytes::new(py, &bytes(vector)))
            .collect())
    }
}

impl PyEmbedder {
    /// The step that embeds some texts: it has its identity when this returns.
    pub fn in_run(
        &self,
        ctx: &Ctx,
        texts: Vec<String>,
    ) -> BoxFuture<'static, Result<Box<RawValue>>> {
        let embedded = ctx.embed(&self.0, texts);
        Box::pin(async move {
            let vectors = embedded.await?;
            raw(&json!(
                vectors.iter().map(memory_said::hex).collect::<Vec<_>>()
            ))
        })
    }
}

/// Numbers as they are kept: a signed byte for each.
#[pyfunction]
pub fn quantised<'py>(py: Python<'py>, numbers: Numbers) -> PyResult<Bound<'py, PyBytes>> {
    let vector = numbers.read().map_err(|why| refuse(py, &why))?;
    let bytes: Vec<u8> = vector.components().iter().map(|c| *c as u8).collect();
    Ok(PyBytes::new(py, &bytes))
}

/// What a function in Python says.
#[derive(FromPyObject)]
enum Told {
    /// How it failed, and whether it may be called again.
    Failed(String, bool),
    Vectors(Vec<Numbers>),
}

/// A function in Python.
struct Own {
    call: Py<PyAny>,
    id: EmbedderId,
    dimensions: usize,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the Python function {}", self.id)
    }
}

impl Own {
    fn ask(&self, py: Python<'_>, texts: &[&str]) -> std::result::Result<Vec<Vector>, EmbedError> {
        let told = self.call.call1(py, (texts.to_vec(),));
        let told = told.and_then(|told| told.extract::<Told>(py));
        let given = match told {
            Ok(Told::Vectors(given)) => given,
            Ok(Told::Failed(why, is_temporary)) => {
                return Err(EmbedError::Own { why, is_temporary });
            }
            Err(e) => return Err(own(e.to_string())),
        };
        if given.len() != texts.len() {
            let (found, wanted) = (given.len(), texts.len());
            return Err(own(format!(
                "it gave {found} vectors for {wanted} texts: give one for each"
            )));
        }
        given
            .into_iter()
            .map(|numbers| {
                let vector = numbers.read().map_err(own)?;
                let (found, wanted) = (vector.dimension(), self.dimensions);
                if found != wanted {
                    return Err(own(format!(
                        "it gave a vector of {found} dimensions, and is said to have {wanted}: \
                         say how many it has"
                    )));
                }
                Vector::from_i8(vector.components().to_vec()).map_err(|e| own(e.to_string()))
            })
            .collect()
    }
}

impl Embedder for Own {
    fn id(&self) -> &EmbedderId {
        &self.id
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn limit(&self) -> TextLimit {
        TextLimit {
            bytes: usize::MAX,
            tokens: None,
        }
    }

    fn embed(&self, texts: &[&str]) -> std::result::Result<Vec<Vector>, EmbedError> {
        let asked = crate::gate::attach(|py| self.ask(py, texts));
        asked.unwrap_or_else(|| {
            Err(EmbedError::Own {
                why: "the interpreter is ending".into(),
                is_temporary: true,
            })
        })
    }
}

fn own(why: String) -> EmbedError {
    let is_temporary = false;
    EmbedError::Own { why, is_temporary }
}
