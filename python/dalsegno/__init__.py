"""Crash-safe agents: a dead process resumes at the first unfinished step, and nothing happens twice.

>>> import dalsegno
>>>
>>> @dalsegno.model
... def ask(prompt: str) -> str:
...     return client.complete(prompt).text
...
>>> @dalsegno.tool(effect="once", probe=was_it_sent)
... def send(text: str, *, key: str = "") -> str:
...     return mail.send(text, message_id=key)
...
>>> @dalsegno.agent
... def report(topic: str) -> str:
...     text = ask(f"Write about {topic}")
...     if dalsegno.approval("publish", text):          # an hour or a week, over any restart
...         send(text)                                  # never sent twice
...     return text
...
>>> with dalsegno.open("./agents.dalsegno", agents=[report]) as app:
...     print(app.run(report, "report on whales", "whales"))

Async agents and programs: :mod:`dalsegno.aio`.
"""

from __future__ import annotations

import datetime as _datetime
import uuid as _uuid
from collections.abc import Callable as _Callable
from collections.abc import Iterable as _Iterable
from typing import Any as _Any
from typing import ParamSpec as _ParamSpec
from typing import TypeVar as _TypeVar
from typing import overload as _overload

from . import _steps, aio
from ._agents import Again, Agent, again, agent
from ._app import App, Run, open
from ._ask import Budget, Recovered, Replayed, RunInfo, Why
from ._conversations import Said as _Said
from ._dalsegno import Call
from ._embed import Embedder, StaticTable
from ._embed import EmbedWant as _EmbedWant
from ._errors import (
    AgentNotFound,
    AlreadyStarted,
    ApprovalError,
    BadUse,
    BudgetExceeded,
    ChildFailed,
    Closed,
    DocumentEnded,
    Error,
    Expired,
    Failure,
    Forked,
    ForkError,
    InDoubt,
    MemoryFailure,
    Mismatch,
    NeedsAttention,
    NoAnswer,
    NotDone,
    NotInDoubt,
    NotMoving,
    NotSerialisable,
    NotTaken,
    Rejected,
    RunCancelled,
    RunEnded,
    RunError,
    RunFailed,
    RunNotFound,
    StepFailed,
    StepTimeout,
    StoreError,
    Terminal,
    TooLarge,
    Unwind,
)
from ._frames import current_call, current_run
from ._memory import Memory, RunMemory
from ._memory_given import Ranking, Vector
from ._memory_said import Change, Document, Ended, Explanation, Found, Hit, Revision, Version
from ._perform import DID_NOT_HAPPEN, UNKNOWN, Probe, happened
from ._remote import Remote
from ._resources import Resource
from ._steps import Answer, PlanStep
from ._times import Time as _Time
from ._tools import Approval, Retry, Tool, model, tool

__all__ = [
    "DID_NOT_HAPPEN",
    "UNKNOWN",
    "Again",
    "Agent",
    "AgentNotFound",
    "AlreadyStarted",
    "Answer",
    "App",
    "Approval",
    "ApprovalError",
    "BadUse",
    "Budget",
    "BudgetExceeded",
    "Call",
    "Change",
    "ChildFailed",
    "Closed",
    "Conversation",
    "Document",
    "DocumentEnded",
    "Embedder",
    "Ended",
    "Error",
    "Expired",
    "Explanation",
    "Failure",
    "ForkError",
    "Forked",
    "Found",
    "Hit",
    "InDoubt",
    "Memory",
    "MemoryFailure",
    "Mismatch",
    "NeedsAttention",
    "NoAnswer",
    "NotDone",
    "NotInDoubt",
    "NotMoving",
    "NotSerialisable",
    "NotTaken",
    "PlanStep",
    "Probe",
    "Ranking",
    "Recovered",
    "Rejected",
    "Remote",
    "Replayed",
    "Resource",
    "Retry",
    "Revision",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunError",
    "RunFailed",
    "RunInfo",
    "RunMemory",
    "RunNotFound",
    "StaticTable",
    "StepFailed",
    "StepTimeout",
    "StoreError",
    "Terminal",
    "TooLarge",
    "Tool",
    "Unwind",
    "Vector",
    "Version",
    "Why",
    "again",
    "agent",
    "aio",
    "approval",
    "checkpoint",
    "child",
    "child_as",
    "conversation",
    "current_call",
    "current_run",
    "decide",
    "embed",
    "event",
    "happened",
    "memory",
    "model",
    "now",
    "open",
    "patched",
    "plan_step",
    "random",
    "send_signal",
    "signal",
    "sleep",
    "tool",
    "uuid4",
]

_P = _ParamSpec("_P")
_R = _TypeVar("_R")
_T = _TypeVar("_T")


def sleep(time: _Time) -> None:
    """Waits for a time (seconds), also while no process is running. The run leaves memory meanwhile."""
    _steps.sleep(time).here()


def decide(name: str, choice: _T, *, because: str = "") -> _T:
    """Records a decision, so that the run takes the same branch ever after. What is recorded wins.

    >>> if dalsegno.decide("enough found", len(pages) > 3, because="more costs more than it gives"):
    ...     break
    """
    return _steps.decide(name, choice, because).here()


def event(kind: str, content: _Any = None) -> None:
    """Notes something in the run's record, once."""
    _steps.event(kind, content).here()


@_overload
def signal(name: str, of: type[_T], *, timeout: _Time | None = None) -> _T: ...
@_overload
def signal(name: str, *, timeout: _Time | None = None) -> _Any: ...
def signal(name: str, of: _Any = _Any, *, timeout: _Time | None = None) -> _Any:
    """Waits for a signal of this name, and takes it; with a time limit it raises :class:`StepTimeout`.

    >>> paid = dalsegno.signal("paid", Payment, timeout=86_400)
    """
    return _steps.signal(name, of, timeout).here()


def send_signal(run: str, name: str, value: _Any = None) -> None:
    """Sends a signal to another run of this store, exactly once."""
    _steps.send_signal(run, name, value).here()


def approval(name: str, of: _Any = None, *, expires: _Time | None = None, wait: _Time | None = None) -> Answer:
    """Asks a person, showing them something; the answer is bound to exactly that, and counts once.

    >>> answer = dalsegno.approval("refund", {"order": 42, "amount": 99})
    >>> if not answer.approved:
    ...     return f"{answer.by} said no: {answer.note}"
    """
    return _steps.approval(name, of, expires, wait).here()


def child(agent: Agent[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Starts a run of another agent, and waits for its result. While it waits, this run costs nothing."""
    return _steps.child(agent, args, kwargs).here()


def child_as(name: str, agent: Agent[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """The same as :func:`child`, with a name for the run, by which others find it."""
    return _steps.child_as(name, agent, args, kwargs).here()


class Conversation(_Said):
    """What was said so far; :func:`conversation` makes it. Given to a step it costs the same however long it is."""

    def append(self, message: _Any) -> None:
        """Says something: a step, which records this message alone."""
        _steps.message(self, message).here()


def conversation(name: str) -> Conversation:
    """A conversation of this run, by name. In a loop it has what was said in earlier turns.

    >>> @dalsegno.model
    ... def reply(chat: dalsegno.Conversation) -> str:
    ...     return client.complete(messages=chat.messages).text
    ...
    >>> chat = dalsegno.conversation("chat")
    >>> chat.append({"role": "user", "content": "What is a whale?"})
    >>> chat.append({"role": "assistant", "content": reply(chat)})
    """
    return _steps.conversation(name, Conversation).here()


def memory(name: str, *, by: str | None = None) -> RunMemory:
    """A memory of the store, which all runs share; ``by`` is in whose name it is written (else the run's).

    What it is asked is recorded, with the version that answered: after a crash the same documents are found, with the
    same scores. What it is given happens once.

    >>> kitchen = dalsegno.memory("kitchen")
    >>> kitchen.add("The oven heats up in 12 minutes.", sources=["manual.pdf"])
    >>> found = kitchen.search("heating the oven", limit=3)
    >>> answer = ask("\\n".join(hit.text for hit in found.hits))
    """
    return RunMemory(name, by)


def embed(embedder: StaticTable | Embedder, texts: _Iterable[str]) -> list[Vector]:
    """The vectors of some texts, in their order: a step. What the embedder says is recorded, and it is not asked again.

    >>> [vector] = dalsegno.embed(table, ["how hot is the oven"])
    >>> found = dalsegno.memory("kitchen").search("how hot is the oven", vector=vector)
    """
    return _EmbedWant(embedder, texts).here()


def checkpoint(
    name: str,
    state: _Any = None,
    *,
    progress: tuple[int, int] | None = None,
    pinned: bool = False,
    holding: _Iterable[Resource] = (),
    releasing: _Iterable[Resource] = (),
) -> None:
    """Marks a place, with what the run knows there: for people, for forks, and before something dangerous.

    It is on disk when this returns. What it is ``holding`` is looked at again before the run is resumed, until it is
    held anew or released. ``progress`` is which step of how many; a ``pinned`` one is kept in sight.

    >>> dalsegno.checkpoint("written", progress=(3, 12), holding=[Resource.git(".", "agent")])
    """
    _steps.checkpoint(name, state, progress, pinned, holding, releasing).here()


def now() -> _datetime.datetime:
    """The time (UTC). Recorded, and never before a time that this run was told earlier."""
    return _steps.now().here()


def random() -> float:
    """A random number from 0 to 1. Recorded."""
    return _steps.random().here()


def uuid4() -> _uuid.UUID:
    """A random id. Recorded."""
    return _steps.uuid4().here()


def patched(change: str) -> bool:
    """Whether code that was changed on purpose is to be used: not in runs that were here before the change."""
    return _steps.patched(change).here()


@_overload
def plan_step(code: _Callable[_P, _R], /) -> PlanStep[_P, _R]: ...
@_overload
def plan_step(*, name: str) -> _Callable[[_Callable[_P, _R]], PlanStep[_P, _R]]: ...
def plan_step(code: _Callable[_P, _R] | None = None, /, *, name: str | None = None) -> _Any:
    """Makes a function a part of the plan, with steps of its own.

    When it has its result, nothing inside is looked at again.

    >>> @dalsegno.plan_step
    ... def gather(topic: str) -> list[str]:
    ...     return [search(topic, source) for source in SOURCES]
    """
    return (lambda code: PlanStep(code, name)) if code is None else PlanStep(code, name)
