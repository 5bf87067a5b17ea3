//! Scopes: plan steps, and branches that run in parallel.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Ctx, encode_and_read};
use crate::effect::Effect;
use crate::failure::Result;
use crate::run::{Begun, Done, Step};
use crate::step::StepKind;

impl Ctx {
    /// A part of the plan, with steps of its own and a result. When it has its result, nothing
    /// inside is looked at again.
    ///
    /// ```no_run
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// let found: Vec<String> = ctx.plan_step("research", |ctx| async move {
    ///     let page: String = ctx.tool("search").read_only()
    ///         .call(|_| async { Ok("a page".to_owned()) }).await?;
    ///     Ok(vec![page])
    /// }).await?;
    /// # Ok(()) }
    /// ```
    pub fn plan_step<T, F, Fut>(
        &self,
        name: &str,
        code: F,
    ) -> impl Future<Output = Result<T>> + Send + use<T, F, Fut>
    where
        T: Serialize + DeserializeOwned + Send,
        F: FnOnce(Ctx) -> Fut + Send,
        Fut: Future<Output = Result<T>> + Send,
    {
        let (ctx, id) = (self.clone(), self.identify(name));
        async move {
            let id = id?;
            let step = Step::new(id.clone(), StepKind::PlanStep, Effect::ReadOnly);
            let mut ticket = match ctx.run.begin(step).await {
                Err(stopped) => return ctx.frozen(stopped).await,
                Ok(Begun::Recorded(outcome)) => return ctx.recorded(&id, outcome).await,
                // A plan step has no effect of its own, so it is never in doubt.
                Ok(Begun::InDoubt(doubt)) => {
                    let stopped = ctx.run.escalate(&doubt);
                    return ctx.frozen(stopped).await;
                }
                Ok(Begun::Execute(ticket)) => ticket,
            };
            // What is inside counts for itself.
            ticket.active = None;
            let mut inside = ctx.scoped(id.as_str());
            inside.in_plan = true;
            let result = code(inside).await;
            // As it is recorded: with the step that failed, which is this one if none inside did.
            let written = result.and_then(|value| encode_and_read(&value));
            let written = written.map_err(|failure| failure.at(id.as_str()));
            ticket.used = ctx.run.forget_kept_back(&id);
            let (done, result) = match written {
                Ok((output, read)) => {
                    let (output, usage) = (Some(output), Default::default());
                    (Done::Succeeded { output, usage }, Ok(read))
                }
                Err(failure) => (Done::Failed(failure.clone()), Err(failure)),
            };
            match ctx.run.finish(ticket, done).await {
                Err(stopped) => ctx.frozen(stopped).await,
                Ok(Err(failure)) => Err(failure),
                Ok(Ok(())) => result,
            }
        }
    }

    /// A scope of its own for a branch that runs beside others: what the others do cannot change
    /// the identities of its steps. Make all branches before the first is awaited.
    ///
    /// ```no_run
    /// # async fn look(_: dalsegno::Ctx, _: u8) -> dalsegno::Result<()> { Ok(()) }
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// let (a, b) = tokio::join!(look(ctx.branch("left"), 1), look(ctx.branch("right"), 2));
    /// # a.and(b) }
    /// ```
    pub fn branch(&self, name: &str) -> Ctx {
        match self.run.call(&self.scope, name) {
            Ok(id) => self.scoped(id.as_str()),
            // The first step inside says what is wrong with it.
            Err(_) => self.scoped(format!("{}/{name}", self.scope)),
        }
    }

    /// Does the same with many things at a time, each in a branch of its own; the results in their
    /// order. Each step inside is recorded when it is done, not when all are.
    ///
    /// ```no_run
    /// # async fn agent(ctx: dalsegno::Ctx) -> dalsegno::Result<()> {
    /// let pages: Vec<String> = ctx.each("fetch", ["a", "b"], |ctx, url| async move {
    ///     ctx.tool("get").read_only().input(&url).call(|_| async move { Ok(url.to_owned()) }).await
    /// }).await?;
    /// # Ok(()) }
    /// ```
    pub fn each<I, T, F, Fut>(
        &self,
        name: &str,
        items: I,
        mut code: F,
    ) -> impl Future<Output = Result<Vec<T>>> + Send + use<I, T, F, Fut>
    where
        I: IntoIterator,
        F: FnMut(Ctx, I::Item) -> Fut,
        Fut: Future<Output = Result<T>> + Send,
        T: Send,
    {
        let items = items.into_iter();
        let branches: Vec<_> = items
            .map(|item| Box::pin(code(self.branch(name), item)))
            .collect();
        join_all(branches)
    }
}

/// All of them together; the first failure in their order, when all are done.
async fn join_all<T, F: Future<Output = Result<T>>>(
    mut branches: Vec<std::pin::Pin<Box<F>>>,
) -> Result<Vec<T>> {
    use std::task::Poll;
    let mut results: Vec<Option<Result<T>>> = branches.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (branch, result) in branches.iter_mut().zip(&mut results) {
            if result.is_none() {
                match branch.as_mut().poll(context) {
                    Poll::Ready(done) => *result = Some(done),
                    Poll::Pending => pending = true,
                }
            }
        }
        match pending {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    })
    .await;
    results.into_iter().flatten().collect()
}
