"""What can go wrong, as exceptions.

::

    Error
    ├── StepFailed            a step failed, and its own exception could not be brought back
    │   ├── StepTimeout       (also a TimeoutError)
    │   ├── Rejected, Expired, NoAnswer      of an approval that a step needed
    │   ├── ChildFailed
    │   ├── TooLarge
    │   ├── NotSerialisable   (also a TypeError)
    │   ├── MemoryFailure     a memory cannot do what was asked
    │   │   └── DocumentEnded
    │   └── BadUse
    ├── RunFailed, RunCancelled, RunNotFound, RunEnded, AlreadyStarted
    ├── NeedsAttention        only a person can move the run on
    │   ├── InDoubt, Mismatch, BudgetExceeded
    │   └── NotMoving         it does not move in this process
    ├── AgentNotFound, ApprovalError, NotInDoubt, NotTaken, ForkError
    └── StoreError, Closed, Forked

    NotDone, Terminal         raised *by* a tool, to say what it knows
    Unwind (BaseException)    leaves the code of a run that waits; never to be caught
"""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """How a step or a run failed, as it is recorded."""

    kind: str
    """``failed``, ``timed-out``, ``rejected``, ``expired``, ``child-failed``, ``encoding``, ``misuse``, …"""
    certainty: str
    """``unknown``, ``not-done`` or ``terminal``."""
    message: str
    step: str | None = None

    def __str__(self) -> str:
        return self.message if self.step is None else f"step {self.step}: {self.message}"


class Error(Exception):
    """The base of all exceptions of this package."""


class StepFailed(Error):
    """A step failed. ``failure`` is what is recorded of that."""

    failure: Failure | None = None

    @property
    def step(self) -> str | None:
        """Which step it was."""
        return self.failure.step if self.failure else None


class StepTimeout(StepFailed, TimeoutError):
    """A step took longer than its ``timeout``."""


class Rejected(StepFailed):
    """A person said no to a step that needed an approval."""


class Expired(StepFailed):
    """Nobody answered before the approval that a step needed expired."""


class NoAnswer(StepFailed):
    """Nobody answered in the time that the run was ready to wait."""


class ChildFailed(StepFailed):
    """A child run failed, or was cancelled."""


class TooLarge(StepFailed):
    """A result, an input or a name is larger than it may be."""


class NotSerialisable(StepFailed, TypeError):
    """A value cannot be written down, or not be read back."""


class BadUse(StepFailed):
    """Something was asked for that cannot be: the message says what to do instead."""


class MemoryFailure(StepFailed):
    """A memory cannot do what was asked: the message says why, and what to do. Nothing was changed."""


class DocumentEnded(MemoryFailure):
    """A document was corrected, retracted or forgotten before; the message says by whom, and when.

    >>> try:
    ...     kitchen.correct(oven, "It heats up in 7 minutes.")
    ... except dalsegno.DocumentEnded:
    ...     found = kitchen.search("oven")              # read again, and decide anew
    """


class RunError(Error):
    """Something about a run."""

    run: str | None = None


class RunFailed(RunError):
    """The run ended in a failure. If its exception can be brought back, it is ``__cause__``."""

    failure: Failure | None = None


class RunCancelled(RunError):
    """Somebody ended the run."""


class RunNotFound(RunError):
    """There is no run of this name."""


class RunEnded(RunError):
    """The run is over, and takes nothing more."""


class AlreadyStarted(RunError):
    """A run of this name has another agent or another input."""


class NeedsAttention(RunError):
    """Only a person can move the run on; the message says why, and what to do."""


class InDoubt(NeedsAttention):
    """Nobody knows whether a ``once`` step happened: look, then :meth:`App.resolve` it."""


class Mismatch(NeedsAttention):
    """The code does something else than what is recorded. Both sides are in the message."""


class BudgetExceeded(NeedsAttention):
    """The run has used up its budget: :meth:`App.set_budget` raises it."""


class NotMoving(NeedsAttention):
    """The run does not move in this process; it goes on when the store is opened again."""


class AgentNotFound(Error):
    """There is no such agent in this process."""


class ApprovalError(RunError):
    """The run asks for no such approval, or it has its answer."""


class NotTaken(RunError):
    """The owner of the store has not taken up what was sent to a run, or has refused it."""


class NotInDoubt(RunError):
    """There is no such step in doubt."""


class ForkError(RunError):
    """The run cannot be forked there."""


class StoreError(Error):
    """The store cannot be opened, read or written."""


class Closed(Error):
    """The store was closed."""


class Forked(Error):
    """This process is a fork of the one that opened the store."""


class NotDone(Error):
    """For a tool to raise: it surely did not happen, and may be tried again.

    >>> @tool(effect="once", retries=3)
    ... def pay(amount: int) -> str:
    ...     try:
    ...         connection = connect()
    ...     except OSError as e:
    ...         raise NotDone("the bank cannot be reached") from e
    ...     return connection.pay(amount)
    """


class Terminal(Error):
    """For a tool to raise: it surely did not happen, and trying again is pointless."""


class Unwind(BaseException):
    """Leaves the code of a run that waits, stops or was taken over. Not to be caught.

    ``finally`` blocks run; steps in them are not made. Code that catches it and goes on does nothing
    that counts: its run is elsewhere by then.
    """


_OF_KIND: dict[str, type[StepFailed]] = {
    "timed-out": StepTimeout,
    "rejected": Rejected,
    "expired": Expired,
    "no-answer": NoAnswer,
    "child-failed": ChildFailed,
    "too-large": TooLarge,
    "encoding": NotSerialisable,
    "misuse": BadUse,
    "ended": DocumentEnded,
}


def of_failure(failure: Failure) -> StepFailed:
    """The exception of this package for a failure."""
    made = _OF_KIND.get(failure.kind, StepFailed)(str(failure))
    made.failure = failure
    return made
