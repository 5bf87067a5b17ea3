//! What the demonstration tells, as it happens: one value for people and for programs.
//!
//! As JSON each is a line with `"schema": "dalsegno.demo/1"` and its name in `event`; docs/cli.md
//! describes them.

use serde::Serialize;

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happening {
    /// All is ready.
    Begun {
        agent: &'static str,
        steps: usize,
        /// How many kills there will be.
        kills: u32,
        /// The step to kill in, if there is one.
        at: Option<u8>,
        /// What the random moments follow from.
        seed: Option<u64>,
        probe: bool,
        store: String,
        kept: bool,
        world_pid: u32,
        world: String,
    },
    /// A worker was started.
    WorkerStarted { worker: u32, pid: u32 },
    /// A worker has taken the run up.
    RunStarted {
        run: String,
        worker: u32,
        /// The worker before died while it had it.
        recovered: bool,
        /// Steps that come from the record, and are not done again, by their numbers.
        replayed: Vec<usize>,
        /// Model calls among them, and their tokens.
        saved_calls: u64,
        saved_tokens: u64,
    },
    /// A step has its outcome on disk.
    Step {
        run: String,
        #[serde(flatten)]
        step: Step,
        kind: &'static str,
        effect: &'static str,
        /// From its last beginning to its outcome, if it has a beginning.
        took_us: Option<u64>,
        worker: u32,
    },
    /// A person is asked.
    ApprovalAsked {
        run: String,
        #[serde(flatten)]
        step: Step,
        what: String,
    },
    /// Only a person can move the run on.
    Attention { run: String, reason: String },
    /// The demonstration has answered as that person, through the mailbox of the store.
    PersonSaid {
        run: String,
        id: String,
        /// `approved`, `happened`, `did_not_happen`, `go_on`
        said: &'static str,
        because: String,
    },
    /// What became of a step in doubt is on disk.
    Resolved {
        run: String,
        #[serde(flatten)]
        step: Step,
        by: String,
        happened: bool,
    },
    /// The worker was killed.
    Killed {
        worker: u32,
        pid: u32,
        /// Which kill it was.
        kill: u32,
        of: u32,
        /// Whether it had taken the run up.
        had_begun: bool,
        /// How many of the 12 steps are recorded.
        recorded: u64,
        /// What it had begun, and is not recorded.
        under_way: Vec<UnderWay>,
    },
    /// A run has ended.
    RunEnded {
        run: String,
        worker: u32,
        status: String,
    },
    /// What the world's ledger says about a step, over all runs.
    Counted(Counted),
    /// Something that must hold.
    Checked {
        /// `effects`, `result`, `replay`
        check: &'static str,
        ok: bool,
        words: String,
    },
    /// The end.
    Summary {
        ok: bool,
        kills: u32,
        workers: u32,
        runs: usize,
        /// Steps that came from the record after a kill, over all workers.
        replayed: u64,
        took_us: u64,
        /// What was wrong.
        wrong: Vec<String>,
        /// Where the store is, if it was kept.
        store: Option<String>,
    },
}

/// A step of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// As in `weather`.
    pub step: String,
    /// Its identity, as in `research#1/source#1/ask#1`.
    pub id: String,
    /// Which of the 12 it is; none of a decision and of what is made of steps.
    pub number: Option<usize>,
}

/// A step that was not recorded when its worker died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnderWay {
    #[serde(flatten)]
    pub step: Step,
    /// Whether the world had its request.
    pub in_world: bool,
}

/// What the ledger says about a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    pub step: &'static str,
    pub number: usize,
    pub effect: &'static str,
    pub runs: usize,
    /// Requests; none of what is a file.
    pub asked: Option<u64>,
    /// How often it was done, if it is something that changes the world.
    pub done: Option<u64>,
    pub ok: bool,
}

/// A line of JSON.
#[derive(Serialize)]
pub struct Line<'a> {
    pub schema: &'static str,
    #[serde(flatten)]
    pub happening: &'a Happening,
}
