//! Conversations that grow: each turn costs its own message, not the whole.
//!
//! A chat sends all that was said with every call of a model. Given to the model's step as its input,
//! that would be hashed, stored and compared whole every time: the square of its length. A
//! [`Conversation`] is recorded message by message, and what a model's step notes of it is its length
//! and a hash that follows from the hash before and the new message.
//!
//! Invariant: the same messages in the same order have the same hash; on replay each message is
//! compared with what is recorded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dalsegno_store::{Hash, Kind, NewPayload};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Ctx, StepCall, encode, misuse};
use crate::attention::{Attention, AttentionKind};
use crate::failure::Result;
use crate::journal::{Outcome, bytes_of};
use crate::record;
use crate::run::{Stopped, same_payload};
use crate::step::StepKind;

/// Events looked through at once for messages of earlier turns.
const PAGE: usize = 1024;

/// What was said so far; [`Ctx::conversation`] makes it. All of one name in a run are the same one,
/// and a clone costs nothing.
#[derive(Clone, Debug)]
pub struct Conversation {
    name: Arc<str>,
    said: Arc<Mutex<Said>>,
}

/// The messages, as long as the run is in memory.
#[derive(Debug)]
pub(crate) struct Said {
    messages: Vec<Arc<Value>>,
    hash: Hash,
}

impl Ctx {
    /// A conversation of this run, by name. In a loop it has what was said in earlier turns.
    ///
    /// ```no_run
    /// # async fn ask(_: Vec<std::sync::Arc<serde_json::Value>>) -> dalsegno::Result<String> { Ok(String::new()) }
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// let chat = ctx.conversation("chat").await?;
    /// chat.push(&ctx, "What is a whale?").await?;
    /// let said = chat.clone();
    /// let reply: String = ctx.model("reply").conversation(&chat)
    ///     .call(move |_| { let said = said.clone(); async move { ask(said.messages()).await } })
    ///     .await?;
    /// chat.push(&ctx, &reply).await?;
    /// # Ok(()) }
    /// ```
    pub async fn conversation(&self, name: &str) -> Result<Conversation> {
        crate::step::check_name(name).map_err(misuse)?;
        let (known, before) = {
            let state = self.run.state();
            let turn = state.journal.turn.as_ref();
            let known = state.conversations.get(name).cloned();
            (known, turn.map(|turn| turn.sequence))
        };
        let mut conversation = Conversation {
            name: name.into(),
            said: known.clone().unwrap_or_default(),
        };
        if known.is_none() {
            if let Some(last) = before {
                self.read_messages(&conversation, last).await?;
            }
            // Another branch may have read it in the meantime: then that is the one.
            let mut state = self.run.state();
            let first = state.conversations.entry(name.to_owned());
            conversation.said = Arc::clone(first.or_insert(conversation.said));
        }
        Ok(conversation)
    }

    /// Reads the messages of earlier turns.
    async fn read_messages(&self, conversation: &Conversation, last: u64) -> Result<()> {
        let _active = crate::run::Active::new(&self.run);
        let store = &self.run.store;
        let mut from = 1;
        while from <= last {
            let limit = PAGE.min((last - from + 1) as usize);
            let page = match store.events(&self.run.id, from, limit).await {
                Ok(page) if !page.is_empty() => page,
                Ok(_) => break,
                Err(e) => return self.frozen(Stopped::Store(e.to_string())).await,
            };
            for event in page {
                from = event.sequence + 1;
                let kind = event.fields.number(record::step::KIND);
                if event.kind != Kind::StepSucceeded || kind != Some(StepKind::Message.number()) {
                    continue;
                }
                let path = event.fields.text(record::step::STEP).unwrap_or_default();
                let name = path
                    .rsplit('/')
                    .next()
                    .and_then(|last| last.rsplit_once('#'));
                if name.map(|(name, _)| name) != Some(&*conversation.name) {
                    continue;
                }
                let Some(payload) = &event.output else {
                    continue;
                };
                match bytes_of(&**store, payload).await {
                    Ok(bytes) => conversation.take(&bytes)?,
                    Err(e) => return self.frozen(Stopped::Store(e.to_string())).await,
                }
            }
        }
        Ok(())
    }
}

impl Default for Said {
    fn default() -> Said {
        Said {
            messages: Vec::new(),
            hash: Hash::ZERO,
        }
    }
}

impl Conversation {
    /// Adds a message, and records it. Branches that run beside each other should not add to the
    /// same conversation: which of their messages comes first would be up to chance.
    ///
    /// # Errors
    /// It cannot be written as JSON, or is too large.
    pub async fn push<T>(&self, ctx: &Ctx, message: &T) -> Result<()>
    where
        T: Serialize + ?Sized,
    {
        let id = ctx.identify(&self.name)?;
        let message = encode(message).map_err(|failure| failure.at(id.as_str()))?;
        ctx.expect_kind(&id, StepKind::Message).await;
        match ctx.outcome(&id).await {
            Some(Outcome::Succeeded(Some(then))) if same_payload(&then, &message) => {}
            Some(_) => {
                let reason = format!(
                    "the code says something else at {id} than what is recorded: bring the old code \
                     back, or branch on ctx.patched"
                );
                let attention = Attention::new(AttentionKind::Mismatch, reason).at(&id);
                return ctx.frozen(Stopped::Attention(attention)).await;
            }
            None => {
                ctx.run.replayed(|| format!("message {id}")).await;
                let said = record::succeeded(&id, StepKind::Message, Some(message.clone()));
                ctx.settle(&id, StepKind::Message, vec![said]).await?;
            }
        }
        self.take(&message.bytes)
    }

    fn take(&self, bytes: &[u8]) -> Result<()> {
        let message = Arc::new(serde_json::from_slice(bytes)?);
        let mut said = self.said();
        said.messages.push(message);
        said.hash = said.hash.chain(bytes);
        Ok(())
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that was said, in order.
    pub fn messages(&self) -> Vec<Arc<Value>> {
        self.said().messages.clone()
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.said().messages.len()
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a step notes of it.
    fn noted(&self) -> NewPayload {
        let said = self.said();
        let noted = json!({
            "conversation": &*self.name,
            "messages": said.messages.len(),
            "hash": said.hash.to_string(),
        });
        NewPayload::json(noted.to_string())
    }
}

impl StepCall {
    /// What goes in is a conversation: its length and hash are recorded and compared, at the same
    /// cost however long it is.
    pub fn conversation(mut self, conversation: &Conversation) -> StepCall {
        self.input = Ok(Some(conversation.noted()));
        self
    }
}
