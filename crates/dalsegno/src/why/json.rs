//! The answer as JSON. Names stay as they are; new ones may be added.

use serde_json::{Value, json};

use super::{InDoubt, Next, StepLine, Why};

impl Why {
    /// As JSON: times are microseconds since 1970, and what is not known is `null`.
    pub fn to_json(&self) -> Value {
        let knew = &self.knew;
        let checkpoint = knew.checkpoint.as_ref().map(|written| {
            json!({
                "event": written.sequence,
                "time_us": written.time_us,
                "place": written.place,
                "step": written.progress.map(|(at, _)| at),
                "of": written.progress.map(|(_, of)| of),
                "state": written.state,
            })
        });
        let memory = knew
            .memory
            .map(|memory| json!({ "sequence": memory.sequence, "hash": memory.hash.to_string() }));
        let changed = self.changed.iter().map(|change| {
            json!({ "event": change.sequence, "time_us": change.time_us, "what": change.what })
        });
        json!({
            "run": self.run,
            "agent": self.agent,
            "status": self.status.to_string(),
            "created_us": self.created_us,
            "updated_us": self.updated_us,
            "asked_us": self.asked_us,
            "session": self.session,
            "doing": {
                "open": self.open.iter().map(step).collect::<Vec<_>>(),
                "last": self.last.iter().map(step).collect::<Vec<_>>(),
            },
            "knew": {
                "input": knew.input,
                "checkpoint": checkpoint,
                "memory": memory,
                "signals": knew.signals,
                "resources": knew.resources,
                "usage": {
                    "steps": knew.usage.steps,
                    "tokens_in": knew.usage.tokens_in,
                    "tokens_out": knew.usage.tokens_out,
                    "cost_micros": knew.usage.cost_micros,
                },
                "damage": knew.damage,
            },
            "changed": changed.collect::<Vec<_>>(),
            "in_doubt": self.in_doubt.iter().map(doubt).collect::<Vec<_>>(),
            "next": self.next.iter().map(next).collect::<Vec<_>>(),
            "standing": self.standing.word(),
            "because": self.because,
            "to_do": self.to_do,
        })
    }
}

fn step(line: &StepLine) -> Value {
    json!({
        "step": line.step,
        "kind": line.kind.word(),
        "effect": line.effect.word(),
        "attempts": line.attempts,
        "begun_us": line.begun_us,
        "input": line.input,
        "result": line.outcome.as_ref().and_then(|outcome| outcome.as_ref().ok()),
        "failure": line.outcome.as_ref().and_then(|outcome| outcome.as_ref().err()),
    })
}

fn doubt(doubt: &InDoubt) -> Value {
    json!({
        "step": doubt.step,
        "key": doubt.key,
        "attempt": doubt.attempt,
        "since_us": doubt.since_us,
        "input": doubt.input,
    })
}

fn next(next: &Next) -> Value {
    let mut value = match next {
        Next::Person => json!({}),
        Next::Settle { step } | Next::Outcome { step } => json!({ "step": step }),
        Next::Execute { step, attempt } => json!({ "step": step, "attempt": attempt }),
        Next::Retry {
            step,
            attempt,
            at_us,
        } => json!({ "step": step, "attempt": attempt, "at_us": at_us }),
        Next::Approval {
            approval,
            asked_us,
            expires_us,
            until_us,
        } => json!({
            "approval": approval, "asked_us": asked_us, "expires_us": expires_us,
            "until_us": until_us,
        }),
        Next::Signal { name, until_us } => json!({ "signal": name, "until_us": until_us }),
        Next::Child { step, run } => json!({ "step": step, "run": run }),
        Next::Time { step, until_us } => json!({ "step": step, "until_us": until_us }),
        Next::Code { after } => json!({ "after": after }),
    };
    value["what"] = json!(next.word());
    value
}
