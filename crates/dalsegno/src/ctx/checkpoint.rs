//! Written states: where the code says so, and at the end of each turn of a loop.

use dalsegno_store::{Fields, Kind, NewEvent, NewPayload};
use serde::Serialize;

use super::{Ctx, encode};
use crate::failure::Result;
use crate::journal::Carry;
use crate::record;
use crate::run::{NotRecorded, Stopped};
use crate::step::StepKind;

impl Ctx {
    /// Marks a place, with whatever state shows what the run knows here: for people, for
    /// forks, and before something dangerous. It is on disk when this returns.
    pub fn checkpoint<T>(
        &self,
        name: &str,
        state: &T,
    ) -> impl Future<Output = Result<()>> + Send + use<T>
    where
        T: Serialize + ?Sized,
    {
        let (ctx, id, state) = (self.clone(), self.identify(name), encode(state));
        async move {
            let (id, state) = (id?, state?);
            ctx.expect_kind(&id, StepKind::Checkpoint).await;
            if ctx.outcome(&id).is_some() {
                return Ok(());
            }
            ctx.run.replayed(format!("checkpoint {id}")).await;
            let fields = Fields::new().with(record::checkpoint::STEP, id.as_str());
            let event = NewEvent::new(Kind::CheckpointWritten).with_fields(fields);
            ctx.record(&id, vec![event.with_output(state)]).await?;
            match ctx.run.durable().await {
                Ok(()) => Ok(()),
                Err(stopped) => ctx.frozen(stopped).await,
            }
        }
    }

    /// The scope of a loop's turn, from 1.
    pub(crate) fn turn(&self, turn: u64) -> Ctx {
        self.run.new_turn();
        self.scoped(format!("@{turn}"))
    }

    /// Writes the state after a turn: from here on nothing before it is needed.
    pub(crate) async fn end_turn(&self, turn: u64, state: NewPayload) -> Result<()> {
        self.run.replayed(format!("end of turn {turn}")).await;
        let carry = Carry::of(&self.run.state().journal).to_json();
        let fields = Fields::new().with(record::checkpoint::TURN, turn);
        let event = NewEvent::new(Kind::CheckpointWritten).with_fields(fields);
        let event = event.with_input(NewPayload::json(carry)).with_output(state);
        match self.run.record(vec![event]).await {
            Ok(_) => {}
            Err(NotRecorded::Stopped(Stopped::EndOfRecord)) => {
                return self.frozen(Stopped::EndOfRecord).await;
            }
            Err(NotRecorded::Stopped(stopped)) => return self.frozen(stopped).await,
            Err(NotRecorded::Refused(why)) => {
                let why = format!("the state after turn {turn} cannot be recorded: {why}");
                return Err(super::misuse(why));
            }
        }
        self.committed().await;
        Ok(())
    }
}
