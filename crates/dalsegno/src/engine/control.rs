//! What people and other programs say to runs: signals, answers, verdicts, the wish to end.
//!
//! Invariant: what cannot be meant is an error here, before anything is recorded: an unknown run, an
//! approval that nobody asked for or that has its answer, a step that is not in doubt.

use dalsegno_store::{Append, Fields, Kind, NewEvent, NewPayload, StreamId};

use super::Engine;
use crate::budget::Budget;
use crate::error::Error;
use crate::journal::{self, Journal, Verdict};
use crate::record;
use crate::step::StepId;

impl Engine {
    /// The journal of a run that has not ended.
    async fn live(&self, name: &str) -> Result<(StreamId, Journal), Error> {
        let (id, journal) = self.journal(name).await?;
        if journal.status.is_final() {
            return Err(Error::RunEnded {
                run: name.to_owned(),
                status: journal.status.to_string(),
            });
        }
        Ok((id, journal))
    }

    /// The journal of a run.
    pub(super) async fn journal(&self, name: &str) -> Result<(StreamId, Journal), Error> {
        let id = StreamId::run(name)?;
        match journal::load(&*self.store, &id, None).await {
            Ok(journal) => Ok((id, journal)),
            Err(dalsegno_store::StoreError::NotFound { .. }) => {
                Err(Error::RunNotFound(name.to_owned()))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Records something for a run, durably, and tells it.
    async fn say(&self, run: &StreamId, event: NewEvent) -> Result<(), Error> {
        let append = Append::to(run.clone(), vec![event]);
        let appended = self.store.append(vec![append]).await?;
        self.store.durable(appended.position).await?;
        self.launch(run);
        Ok(())
    }

    pub(super) async fn signal(
        &self,
        run: &str,
        name: &str,
        value: NewPayload,
    ) -> Result<(), Error> {
        let id = StreamId::run(run)?;
        let fields = Fields::new().with(record::signal::NAME, name);
        let event = NewEvent::new(Kind::SignalReceived).with_fields(fields);
        match self.store.head(&id).await? {
            None => Err(Error::RunNotFound(run.to_owned())),
            Some(_) => self.say(&id, event.with_input(value)).await,
        }
    }

    pub(super) async fn answer(
        &self,
        run: &str,
        approval: &str,
        approved: bool,
        by: &str,
        note: &str,
    ) -> Result<(), Error> {
        let (id, journal) = self.live(run).await?;
        let step = StepId::new(approval);
        let Some(asked) = journal.approvals.get(&step) else {
            let open: Vec<_> = journal
                .approvals
                .iter()
                .filter(|(_, a)| a.answer.is_none())
                .collect();
            let open: Vec<_> = open.iter().map(|(id, _)| id.as_str()).collect();
            return Err(Error::NoSuchApproval {
                run: run.to_owned(),
                approval: approval.to_owned(),
                open: match open.is_empty() {
                    true => "it asks for none".to_owned(),
                    false => format!("it asks for {}", open.join(", ")),
                },
            });
        };
        let closed = |why: String| Error::ApprovalClosed {
            run: run.to_owned(),
            approval: approval.to_owned(),
            why,
        };
        if let Some(answer) = &asked.answer {
            let said = if answer.approved {
                "approved"
            } else {
                "rejected"
            };
            return Err(closed(format!("{} has {said} it", answer.by)));
        }
        let expired = asked
            .expires_us
            .is_some_and(|at| self.runtime.now_us() > at);
        if expired {
            return Err(closed("it has expired".into()));
        }
        let fields = Fields::new()
            .with(record::step::STEP, approval)
            .with(record::approval::HASH, asked.hash.clone())
            .with(record::approval::VERDICT, if approved { 1 } else { 2 })
            .with(record::approval::BY, by)
            .with(record::approval::NOTE, record::bounded(note));
        let event = NewEvent::new(Kind::ApprovalAnswered).with_fields(fields);
        self.say(&id, event).await
    }

    pub(super) async fn resolve(
        &self,
        run: &str,
        step: &str,
        verdict: Verdict,
        result: Option<NewPayload>,
        by: &str,
    ) -> Result<(), Error> {
        let (id, journal) = self.live(run).await?;
        let found = journal.steps.get(&StepId::new(step));
        let doubtful = journal.in_doubt().map(StepId::as_str);
        if doubtful != Some(step) || !found.is_some_and(|found| found.is_open()) {
            return Err(Error::NotInDoubt {
                run: run.to_owned(),
                step: step.to_owned(),
                open: match doubtful {
                    Some(step) => format!("{step} is"),
                    None => "no step of it is".to_owned(),
                },
            });
        }
        let fields = Fields::new()
            .with(record::step::STEP, step)
            .with(record::resolved::VERDICT, verdict.number())
            .with(record::resolved::BY, by);
        let mut event = NewEvent::new(Kind::StepResolved).with_fields(fields);
        event.input = result;
        self.say(&id, event).await
    }

    pub(super) async fn cancel(&self, run: &str, reason: &str) -> Result<(), Error> {
        let (id, _) = self.live(run).await?;
        let fields = Fields::new().with(record::cancel::REASON, record::bounded(reason));
        self.say(
            &id,
            NewEvent::new(Kind::CancelRequested).with_fields(fields),
        )
        .await
    }

    pub(super) async fn clear_attention(&self, run: &str) -> Result<(), Error> {
        let (id, _) = self.live(run).await?;
        self.say(&id, NewEvent::new(Kind::AttentionCleared)).await
    }

    pub(super) async fn set_budget(&self, run: &str, budget: &Budget) -> Result<(), Error> {
        let (id, _) = self.live(run).await?;
        self.say(&id, record::budget_set(budget)).await
    }
}
