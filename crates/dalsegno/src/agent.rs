//! Agents: plain async functions, and loops with a state.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use dalsegno_store::NewPayload;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ctx::{Ctx, encode, encode_and_read};
use crate::failure::{Certainty, Failure, FailureKind, Result};
use crate::journal::bytes_of;
use crate::runtime::BoxFuture;

/// What a turn of a loop came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn<S, O> {
    /// Another turn follows, from this state.
    Continue(S),
    /// The run is done.
    Done(O),
}

/// Something that can execute runs.
pub(crate) trait Agent: Send + Sync {
    /// Executes a run, from its beginning or from where it was.
    fn run(&self, ctx: Ctx, input: Vec<u8>) -> BoxFuture<'static, Result<NewPayload>>;

    /// Whether its last turn stands for what was before.
    fn is_loop(&self) -> bool;
}

pub(crate) struct Function<F, I> {
    code: Arc<F>,
    input: PhantomData<fn(I)>,
}

impl<F, I> Function<F, I> {
    pub fn new(code: F) -> Function<F, I> {
        Function {
            code: Arc::new(code),
            input: PhantomData,
        }
    }
}

impl<F, I, O, Fut> Agent for Function<F, I>
where
    F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O>> + Send + 'static,
    I: DeserializeOwned + 'static,
    O: Serialize + 'static,
{
    fn run(&self, ctx: Ctx, input: Vec<u8>) -> BoxFuture<'static, Result<NewPayload>> {
        let input = match read_input(&input) {
            Ok(input) => input,
            Err(failure) => return Box::pin(std::future::ready(Err(failure))),
        };
        let running = (self.code)(ctx, input);
        Box::pin(async move { encode(&running.await?) })
    }

    fn is_loop(&self) -> bool {
        false
    }
}

pub(crate) struct Loop<B, F, I, S> {
    begin: Arc<B>,
    turn: Arc<F>,
    types: PhantomData<fn(I, S)>,
}

impl<B, F, I, S> Loop<B, F, I, S> {
    pub fn new(begin: B, turn: F) -> Loop<B, F, I, S> {
        Loop {
            begin: Arc::new(begin),
            turn: Arc::new(turn),
            types: PhantomData,
        }
    }
}

impl<B, F, I, S, O, Fut> Agent for Loop<B, F, I, S>
where
    B: Fn(I) -> S + Send + Sync + 'static,
    F: Fn(Ctx, S) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Turn<S, O>>> + Send + 'static,
    I: DeserializeOwned + 'static,
    S: Serialize + DeserializeOwned + Send + Sync + 'static,
    O: Serialize + Send + 'static,
{
    fn run(&self, ctx: Ctx, input: Vec<u8>) -> BoxFuture<'static, Result<NewPayload>> {
        let (begin, turn) = (Arc::clone(&self.begin), Arc::clone(&self.turn));
        Box::pin(async move {
            let (mut done, mut state) = match last_turn(&ctx).await? {
                Some((done, state)) => (done, read_state(&state)?),
                None => (0, begin(read_input(&input)?)),
            };
            loop {
                match turn(ctx.turn(done + 1), state).await? {
                    Turn::Done(output) => return encode(&output),
                    Turn::Continue(next) => {
                        done += 1;
                        let (written, read) = encode_and_read(&next)?;
                        ctx.end_turn(done, written).await?;
                        state = read;
                    }
                }
            }
        })
    }

    fn is_loop(&self) -> bool {
        true
    }
}

/// The state after the last turn, and how many there were.
async fn last_turn(ctx: &Ctx) -> Result<Option<(u64, Vec<u8>)>> {
    let found = {
        let state = ctx.run.state();
        let turn = state.journal.turn.as_ref();
        turn.and_then(|c| Some((c.turn?, c.state.clone()?)))
    };
    match found {
        None => Ok(None),
        Some((turn, payload)) => Ok(Some((turn, bytes_of(&*ctx.run.store, &payload).await?))),
    }
}

fn read_input<I: DeserializeOwned>(bytes: &[u8]) -> Result<I> {
    serde_json::from_slice(bytes).map_err(|e| {
        let wanted = std::any::type_name::<I>();
        let why = format!("the run's input cannot be read as {wanted}: {e}");
        Failure::of(FailureKind::Encoding, Certainty::Terminal, why)
    })
}

fn read_state<S: DeserializeOwned>(bytes: &[u8]) -> Result<S> {
    serde_json::from_slice(bytes).map_err(|e| {
        let wanted = std::any::type_name::<S>();
        let why = format!("the state after the last turn cannot be read as {wanted}: {e}");
        Failure::of(FailureKind::Encoding, Certainty::Terminal, why)
    })
}
