//! What runs have used together with their living children, and whether they may go on.
//!
//! A run's own record says what it and its ended children used, and which children live. What those
//! used is in their own records. So the sum over the tree is the same whoever asks and whenever:
//! before a crash, after it, and whichever of the runs are in memory.
//!
//! Invariants: of steps that are begun at the same moment anywhere in a tree no more are let
//! through than its budget has room for. A run that nobody limits is never looked up.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dalsegno_store::{Store, StoreError, StreamId};

use crate::budget::{Budget, Usage};
use crate::journal::{self, Journal};
use crate::run::Run;

/// The runs of a process whose usage somebody asked for.
pub(crate) struct Ledger {
    store: Arc<dyn Store>,
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    known: HashMap<StreamId, Account>,
    /// Some of them have ended, and are known for a parent that has not heard of it.
    have_ended: bool,
}

enum Account {
    /// In memory.
    Here(Weak<Run>),
    /// As written: until something is recorded for it.
    Written(Spent),
}

/// What matters of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    parent: Option<StreamId>,
    children: Vec<StreamId>,
    /// With what is under way.
    usage: Usage,
    budget: Budget,
    created_us: u64,
    has_ended: bool,
}

impl Spent {
    /// With so many steps under way.
    pub fn of(journal: &Journal, under_way: u64) -> Spent {
        let mut usage = journal.usage;
        usage.steps = usage.steps.saturating_add(under_way);
        let parent = journal.created.parent.as_ref();
        Spent {
            parent: parent.map(|(parent, _)| parent.clone()),
            children: journal.children.iter().cloned().collect(),
            usage,
            budget: journal.budget,
            created_us: journal.created.time_us,
            has_ended: journal.status.is_final(),
        }
    }
}

/// Something that is not known yet.
struct Missing(StreamId);

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ledger")
    }
}

impl Ledger {
    pub fn new(store: Arc<dyn Store>) -> Arc<Ledger> {
        let accounts = Mutex::default();
        Arc::new(Ledger { store, accounts })
    }

    /// Never asked for while the state of a run is held.
    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run is in memory.
    pub fn is_here(&self, run: &Arc<Run>) {
        let mut accounts = self.accounts();
        if std::mem::take(&mut accounts.have_ended) {
            let lives = |account: &mut Account| match account {
                Account::Here(_) => true,
                Account::Written(spent) => !spent.has_ended,
            };
            accounts.known.retain(|_, account| lives(account));
        }
        let account = Account::Here(Arc::downgrade(run));
        accounts.known.insert(run.id().clone(), account);
    }

    /// A run leaves memory, or something was recorded for one that is not there.
    pub fn forget(&self, run: &StreamId) {
        self.accounts().known.remove(run);
    }

    /// Lets a run begin a step, or says which limit that would go beyond: its own, or that of a run
    /// it is a child of. `begin` is called before anybody else is asked.
    pub async fn may_begin(
        &self,
        run: &Arc<Run>,
        now_us: u64,
        begin: impl Fn(),
    ) -> Result<Option<String>, StoreError> {
        loop {
            let missing = {
                let accounts = self.accounts();
                match accounts.over(run, now_us) {
                    Ok(None) => {
                        begin();
                        return Ok(None);
                    }
                    Ok(over) => return Ok(over),
                    Err(Missing(missing)) => missing,
                }
            };
            let spent = match journal::load(&*self.store, &missing, None).await {
                Ok(journal) => Spent::of(&journal, 0),
                // It was removed, as ended ones may be.
                Err(StoreError::NotFound { .. }) => Spent {
                    has_ended: true,
                    ..Spent::default()
                },
                Err(e) => return Err(e),
            };
            let mut accounts = self.accounts();
            accounts.have_ended |= spent.has_ended;
            match accounts.known.get(&missing) {
                Some(Account::Here(run)) if run.strong_count() > 0 => {}
                _ => {
                    let account = Account::Written(spent);
                    drop(accounts.known.insert(missing, account));
                }
            }
        }
    }
}

impl Accounts {
    fn spent(&self, run: &StreamId) -> Result<Spent, Missing> {
        match self.known.get(run) {
            Some(Account::Written(spent)) => Ok(spent.clone()),
            Some(Account::Here(here)) => match here.upgrade() {
                Some(run) => Ok(run.spent()),
                None => Err(Missing(run.clone())),
            },
            None => Err(Missing(run.clone())),
        }
    }

    /// What a run and its living children have used.
    fn total(&self, spent: &Spent) -> Result<Usage, Missing> {
        let mut total = spent.usage;
        let mut children = spent.children.clone();
        while let Some(child) = children.pop() {
            let spent = self.spent(&child)?;
            total.add(&spent.usage);
            children.extend(spent.children);
        }
        Ok(total)
    }

    /// Which limit another step of a run would go beyond, in words.
    fn over(&self, run: &Run, now_us: u64) -> Result<Option<String>, Missing> {
        let mut spent = run.spent();
        let mut whose = "the budget".to_owned();
        loop {
            if spent.budget.is_limited() {
                let wall_us = now_us.saturating_sub(spent.created_us);
                let total = self.total(&spent)?;
                if let Some(over) = spent.budget.exceeded(&total, wall_us) {
                    return Ok(Some(format!("{whose} is used up: {over}")));
                }
            }
            let Some(parent) = spent.parent.take() else {
                return Ok(None);
            };
            spent = self.spent(&parent)?;
            if spent.has_ended {
                // Nobody could raise its budget any more.
                return Ok(None);
            }
            whose = format!(
                "the budget of {}, which counts its children,",
                parent.name()
            );
        }
    }
}
