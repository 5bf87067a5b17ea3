//! The life of one stream: what each kind of event does to it, and which it allows.

use std::collections::BTreeMap;

use super::{COUNT_LIMIT, Lease, Status, StreamState, field};
use crate::event::{Event, Version};
use crate::kind::Kind;
use crate::name::StreamKind;

/// A run that can go on.
const LIVE: [Option<Status>; 3] = [
    Some(Status::Pending),
    Some(Status::Running),
    Some(Status::Checkpointed),
];

impl StreamState {
    /// Before its first event.
    pub(crate) fn new(time_us: u64) -> StreamState {
        StreamState {
            head: Version::START,
            status: None,
            agent: None,
            created_us: time_us,
            updated_us: time_us,
            attention: None,
            lease: None,
            last_token: 0,
            timers: BTreeMap::new(),
            broken: false,
        }
    }

    /// Whether nothing can follow.
    pub fn has_ended(&self) -> bool {
        self.status.is_some_and(Status::is_final)
    }

    /// Takes an event in. An error says why it makes no sense here.
    pub(crate) fn apply(&mut self, event: &Event) -> Result<(), String> {
        if self.has_ended() {
            return Err(format!("{} after the run had ended", event.kind));
        }
        if event.stream.kind() == StreamKind::Run && event.kind != Kind::RunCreated {
            self.expect_status(event, &LIVE)?;
        }
        let fields = &event.fields;
        match &event.kind {
            kind if !kind.may_be_skipped() => {
                return Err(format!("{kind} is from a newer version: use that one"));
            }
            Kind::RunCreated => {
                if event.stream.kind() != StreamKind::Run {
                    return Err(format!("{} in a stream that is no run", event.kind));
                }
                self.expect_status(event, &[None])?;
                self.status = Some(Status::Pending);
                self.agent = fields.text(field::AGENT).map(Into::into);
            }
            Kind::RunStarted => self.go(event, Status::Running)?,
            Kind::RunCheckpointed => self.go(event, Status::Checkpointed)?,
            Kind::RunCompleted => self.go(event, Status::Completed)?,
            Kind::RunFailed => self.go(event, Status::Failed)?,
            Kind::RunCancelled => self.go(event, Status::Cancelled)?,
            Kind::AttentionRaised => {
                let reason = fields.text(field::REASON).unwrap_or("no reason given");
                self.attention = Some(reason.to_owned());
            }
            Kind::AttentionCleared => self.attention = None,
            Kind::LeaseTaken | Kind::LeaseReleased => self.lease(event)?,
            Kind::TimerSet => {
                let (id, due) = (fields.text(field::TIMER), fields.number(field::DUE));
                let (id, due) = id.zip(due).ok_or("a timer without a name or a time")?;
                self.timers.insert(id.to_owned(), due);
            }
            Kind::TimerFired | Kind::TimerCancelled => {
                let id = fields.text(field::TIMER).ok_or("a timer without a name")?;
                self.timers.remove(id);
            }
            _ => {}
        }
        Ok(())
    }

    fn expect_status(&self, event: &Event, allowed: &[Option<Status>]) -> Result<(), String> {
        if allowed.contains(&self.status) {
            return Ok(());
        }
        let now = match self.status {
            Some(status) => format!("a run that is {status}"),
            None if event.stream.kind() == StreamKind::Run => "a run that was not created".into(),
            None => "a stream that is no run".into(),
        };
        Err(format!("{} in {now}", event.kind))
    }

    fn go(&mut self, event: &Event, to: Status) -> Result<(), String> {
        self.expect_status(event, &LIVE)?;
        self.status = Some(to);
        if to.is_final() {
            self.timers.clear();
            self.lease = None;
            self.attention = None;
        }
        Ok(())
    }

    fn lease(&mut self, event: &Event) -> Result<(), String> {
        let token = event
            .fields
            .number(field::TOKEN)
            .ok_or("a lease without a token")?;
        if token >= COUNT_LIMIT {
            return Err(format!("{} with token {token}", event.kind));
        }
        if event.kind == Kind::LeaseTaken {
            if token <= self.last_token {
                return Err(format!("token {token} after {}", self.last_token));
            }
            if token == u64::MAX {
                // No other could ever take the run.
                return Err(format!("token {token}, which none can follow"));
            }
        } else if self.lease.as_ref().is_none_or(|lease| lease.token != token) {
            return Err(format!(
                "{} with token {token}, which holds nothing",
                event.kind
            ));
        }
        if event.kind == Kind::LeaseReleased {
            self.lease = None;
            return Ok(());
        }
        self.last_token = token;
        self.lease = Some(Lease {
            owner: event.fields.text(field::OWNER).unwrap_or_default().into(),
            token,
            until_us: event.fields.number(field::UNTIL).unwrap_or(0),
        });
        Ok(())
    }
}
