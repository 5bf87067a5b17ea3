//! What a run depends on outside: files, folders, branches, pages, and whatever the user can look
//! up. Noted with a checkpoint, and looked at again before the run is resumed.
//!
//! | found | policy | what happens |
//! |---|---|---|
//! | as noted, or as a person accepted it | any | the run goes on |
//! | changed or gone | `Attention` | the run waits for a person, who sees both fingerprints |
//! | changed or gone | `Fail` | the run fails |
//! | changed or gone | `GoOn` | the run goes on, and that is recorded |
//! | cannot be looked at | `Attention`, `Fail` | the run waits for a person |
//!
//! Invariants: what a person accepts is exactly what was shown; if it changes again before the run
//! goes on, the person is asked again. A later note of the same resource replaces the earlier one.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dalsegno_store::{Event, Fields, Kind, NewEvent};
use serde_json::{Value, json};

use crate::attention::{Attention, AttentionKind};
use crate::failure::{Result, numbered};
use crate::record::resource as field;
use crate::runtime::{BoxFuture, Runtime};

mod check;
mod files;
mod git;

pub(crate) use check::{Checked, Verdicts, check_all};

/// The fingerprint of what is not there.
pub(crate) const GONE: &str = "gone";
/// So much of the evidence fits into an event.
const EVIDENCE_LIMIT_BYTES: usize = 7 << 10;
/// Longer names, as JSON, are refused: one resource has to fit into the evidence.
const KEY_LIMIT_BYTES: usize = 4 << 10;
/// Longer fingerprints are hashed.
const FINGERPRINT_LIMIT_BYTES: usize = 200;
/// So much is shown of why a resource cannot be looked at.
const WHY_LIMIT_BYTES: usize = 500;

/// What sort of resource it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResourceKind {
    /// A file, by its length and content.
    File,
    /// A folder with all that is in it.
    Folder,
    /// A branch of a git repository, by its commit.
    Git,
    /// A page, by whatever its validator makes of it.
    Url,
    /// Something that only the user's validator knows.
    Custom,
}

// The numbers are part of the format.
numbered! { ResourceKind:
    File = 1, "file";
    Folder = 2, "folder";
    Git = 3, "git";
    Url = 4, "url";
    Custom = 5, "custom";
}

/// What to do if a resource has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfChanged {
    /// The run waits for a person, who accepts the new state by clearing the attention.
    #[default]
    Attention,
    /// The run fails.
    Fail,
    /// The run goes on, and that is recorded.
    GoOn,
}

numbered! { IfChanged:
    Attention = 1, "attention";
    Fail = 2, "fail";
    GoOn = 3, "go-on";
}

/// Something outside that a run depends on; noted with [`crate::Ctx::checkpoint`].
///
/// ```
/// use dalsegno::{IfChanged, Resource};
///
/// let report = Resource::file("report.md");
/// let branch = Resource::git_branch(".", "main").if_changed(IfChanged::Fail);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    kind: ResourceKind,
    name: String,
    detail: Option<String>,
    policy: IfChanged,
}

impl Resource {
    fn new(kind: ResourceKind, name: String) -> Resource {
        Resource {
            kind,
            name,
            detail: None,
            policy: IfChanged::default(),
        }
    }

    /// A file, by its length and content. At most 1 GiB, which is read each time.
    pub fn file(path: impl AsRef<Path>) -> Resource {
        Resource::new(ResourceKind::File, absolute(path.as_ref()))
    }

    /// A folder, by the names and contents of all files in it. Links are not followed; a `.git`
    /// folder is passed over. At most 20,000 files and 1 GiB, which are read each time.
    pub fn folder(path: impl AsRef<Path>) -> Resource {
        Resource::new(ResourceKind::Folder, absolute(path.as_ref()))
    }

    /// What is checked out in a git repository: the branch and its commit.
    pub fn git(repository: impl AsRef<Path>) -> Resource {
        Resource::new(ResourceKind::Git, absolute(repository.as_ref()))
    }

    /// A branch of a git repository, by its commit.
    pub fn git_branch(repository: impl AsRef<Path>, branch: &str) -> Resource {
        let mut resource = Resource::git(repository);
        resource.detail = Some(branch.to_owned());
        resource
    }

    /// A page. The validator that was registered as `url` says what it looks like: its `ETag`, its
    /// `Last-Modified`, its status.
    pub fn url(url: &str) -> Resource {
        Resource::new(ResourceKind::Url, url.to_owned())
    }

    /// Something that the validator of this name knows how to look up.
    pub fn custom(validator: &str, name: &str) -> Resource {
        let mut resource = Resource::new(ResourceKind::Custom, name.to_owned());
        resource.detail = Some(validator.to_owned());
        resource
    }

    /// What to do if it has changed when the run is resumed. [`IfChanged::Attention`] unless this
    /// is said.
    pub fn if_changed(mut self, policy: IfChanged) -> Resource {
        self.policy = policy;
        self
    }

    /// Which it is, whatever it looks like.
    pub fn key(&self) -> String {
        let (kind, name) = (self.kind, &self.name);
        match &self.detail {
            Some(detail) => format!("{kind} {name} ({detail})"),
            None => format!("{kind} {name}"),
        }
    }

    /// What it looks like now: [`GONE`] if it is not there, an error if that cannot be said.
    pub(crate) async fn look(
        &self,
        validators: &Validators,
        runtime: &dyn Runtime,
    ) -> Result<String, String> {
        if self.is_path() && self.name.contains(char::REPLACEMENT_CHARACTER) {
            return Err("its path is not UTF-8, and cannot be recorded: rename it".to_owned());
        }
        // A person accepts it by its key in the evidence, so that has to fit.
        let key_bytes = json!(self.key()).to_string().len();
        if key_bytes > KEY_LIMIT_BYTES {
            return Err(format!(
                "its name takes {key_bytes} bytes, the limit is {KEY_LIMIT_BYTES}"
            ));
        }
        let (path, detail) = (PathBuf::from(&self.name), self.detail.clone());
        let found = match self.kind {
            ResourceKind::File => aside(runtime, move || files::file(&path)).await,
            ResourceKind::Folder => aside(runtime, move || files::folder(&path)).await,
            ResourceKind::Git => {
                aside(runtime, move || git::commit(&path, detail.as_deref())).await
            }
            ResourceKind::Url => validators.ask("url", &self.name).await,
            ResourceKind::Custom => {
                let validator = self.detail.as_deref().unwrap_or_default();
                validators.ask(validator, &self.name).await
            }
        };
        found.map(|found| found.map_or_else(|| GONE.to_owned(), |found| short(&found)))
    }

    fn is_path(&self) -> bool {
        !matches!(self.kind, ResourceKind::Url | ResourceKind::Custom)
    }

    fn fields(&self) -> Fields {
        let fields = Fields::new()
            .with(field::KIND, self.kind.number())
            .with(field::NAME, self.name.as_str());
        match &self.detail {
            Some(detail) => fields.with(field::DETAIL, detail.as_str()),
            None => fields,
        }
    }

    /// That the run depends on it, as it is now.
    pub(crate) fn noted(&self, fingerprint: &str) -> NewEvent {
        let fields = self.fields();
        let fields = fields.with(field::FINGERPRINT, fingerprint);
        let fields = fields.with(field::POLICY, self.policy.number());
        NewEvent::new(Kind::ResourceNoted).with_fields(fields)
    }

    /// That the run depends on it no longer.
    pub(crate) fn released(&self) -> NewEvent {
        let fields = self.fields().with(field::RELEASED, 1);
        NewEvent::new(Kind::ResourceNoted).with_fields(fields)
    }
}

/// Looks at files where that holds nobody up.
async fn aside(
    runtime: &dyn Runtime,
    look: impl FnOnce() -> Result<Option<String>, String> + Send + 'static,
) -> Result<Option<String>, String> {
    let found = Arc::new(Mutex::new(None));
    let to = Arc::clone(&found);
    let work = move || {
        let looked = look();
        *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(looked);
    };
    runtime.blocking(Box::new(work)).await;
    let found = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    found.unwrap_or_else(|| Err("the process ends, or looking at it panicked".to_owned()))
}

/// A fingerprint that an event and a person can take; a long one by its hash.
fn short(fingerprint: &str) -> String {
    if fingerprint.len() <= FINGERPRINT_LIMIT_BYTES {
        return fingerprint.to_owned();
    }
    let hash = blake3::hash(fingerprint.as_bytes()).to_hex();
    let start = crate::why::shorten(fingerprint, FINGERPRINT_LIMIT_BYTES / 2);
    format!("{start}, blake3 {hash}")
}

/// Another process may be in another folder.
fn absolute(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.to_string_lossy().into_owned()
}

/// A resource as it was noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedResource {
    /// What sort it is.
    pub kind: ResourceKind,
    /// Which: a path, an address, a name.
    pub name: String,
    /// The branch, or the validator.
    pub detail: Option<String>,
    /// What it looked like.
    pub fingerprint: String,
    /// What to do if it has changed.
    pub policy: IfChanged,
    /// The event.
    pub sequence: u64,
    /// When, in microseconds since 1970.
    pub time_us: u64,
    /// What it looks like now, as a person has seen and accepted it.
    pub(crate) accepted: Option<String>,
}

impl NotedResource {
    /// Which it is, as in `file data/notes.txt`.
    pub fn key(&self) -> String {
        self.resource().key()
    }

    pub(crate) fn resource(&self) -> Resource {
        Resource {
            kind: self.kind,
            name: self.name.clone(),
            detail: self.detail.clone(),
            policy: self.policy,
        }
    }

    /// Takes in what an event says of a resource.
    pub(crate) fn apply(known: &mut BTreeMap<String, NotedResource>, event: &Event) {
        let fields = &event.fields;
        let kind = fields.number(field::KIND);
        let Some(kind) = kind.and_then(ResourceKind::from_number) else {
            return;
        };
        let text = |key| fields.text(key).map(str::to_owned);
        let policy = fields.number(field::POLICY);
        let noted = NotedResource {
            kind,
            name: text(field::NAME).unwrap_or_default(),
            detail: text(field::DETAIL),
            fingerprint: text(field::FINGERPRINT).unwrap_or_default(),
            policy: policy.and_then(IfChanged::from_number).unwrap_or_default(),
            sequence: event.sequence,
            time_us: event.time_us,
            accepted: None,
        };
        match fields.number(field::RELEASED) {
            Some(_) => known.remove(&noted.key()),
            None => known.insert(noted.key(), noted),
        };
    }
}

impl fmt::Display for NotedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.key(), self.fingerprint)
    }
}

/// The attention for resources that are not as they were noted.
pub(crate) fn attention(changed: &[Checked]) -> Attention {
    let shown: Vec<String> = changed.iter().map(Checked::to_string).collect();
    let reason = format!(
        "what the run depends on has changed: {}: bring it back, or clear the attention to accept \
         it as it is now",
        shown.join("; ")
    );
    let mut list = Vec::new();
    let mut bytes = 0;
    for one in changed {
        let entry = one.to_json();
        bytes += entry.to_string().len() + 1;
        // What does not fit is asked again when the rest is accepted.
        if bytes > EVIDENCE_LIMIT_BYTES {
            break;
        }
        list.push(entry);
    }
    let evidence = json!({ "resources": list });
    Attention::new(AttentionKind::Resource, reason).with_evidence(&evidence)
}

/// A person has cleared an attention: what it showed of resources is accepted.
pub(crate) fn accept(known: &mut BTreeMap<String, NotedResource>, attention: &Attention) {
    if attention.kind != AttentionKind::Resource {
        return;
    }
    let evidence = attention.evidence.as_deref().unwrap_or_default();
    let evidence: Value = serde_json::from_str(evidence).unwrap_or_default();
    for one in evidence["resources"].as_array().into_iter().flatten() {
        let (key, found) = (one["resource"].as_str(), one["found"].as_str());
        if let (Some(key), Some(found)) = (key, found)
            && let Some(noted) = known.get_mut(key)
        {
            noted.accepted = Some(found.to_owned());
        }
    }
}

type ValidatorFn = Arc<dyn Fn(String) -> BoxFuture<'static, Result<Option<String>>> + Send + Sync>;

/// The user's ways of looking things up, by name.
#[derive(Clone, Default)]
pub(crate) struct Validators(Arc<HashMap<String, ValidatorFn>>);

impl fmt::Debug for Validators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Validators {
    pub fn insert(&mut self, name: &str, validator: ValidatorFn) {
        Arc::make_mut(&mut self.0).insert(name.to_owned(), validator);
    }

    async fn ask(&self, validator: &str, name: &str) -> Result<Option<String>, String> {
        let Some(look) = self.0.get(validator) else {
            return Err(format!(
                "there is no validator {validator:?} in this process: register it with \
                 Builder::resource before the store is opened"
            ));
        };
        let asked = crate::ctx::CatchPanic::new(look(name.to_owned())).await;
        match asked {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(failure)) => Err(format!("the validator {validator:?} failed: {failure}")),
            Err(panic) => Err(format!("the validator {validator:?} panicked: {panic}")),
        }
    }
}
