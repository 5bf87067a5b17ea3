"""Pydantic AI, crash-safe: what its agents ask of models, tools and MCP servers are steps of a run.

>>> import dalsegno
>>> from dalsegno.pydantic_ai import DalsegnoAgent
>>> from pydantic_ai import Agent
>>>
>>> clerk = DalsegnoAgent(Agent("openai:gpt-5", name="clerk"))
>>>
>>> @clerk.tool_plain(metadata={"dalsegno": {"effect": "idempotent"}})
... async def book(flight: str) -> str:
...     return await airline.book(flight, idempotency_key=dalsegno.current_call().key)
...
>>> @dalsegno.agent
... async def travel(request: str) -> str:
...     return (await clerk.run(request)).output
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Literal, TypedDict, cast

from pydantic import TypeAdapter
from pydantic_ai.agent import AbstractAgent, AgentRun, EventStreamHandler, WrapperAgent
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    JournalCallableOperationBackend,
    ModelCompactMessagesId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.output import OutputDataT
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, RunContext
from typing_extensions import override

from . import _steps
from ._errors import Terminal
from ._frames import PLACE, Execution, Frame, current_call
from ._scopes import Effect, Manner, Scope, current, here, inside, step
from ._times import Time
from ._tools import Retry

__all__ = ["DalsegnoAgent", "DalsegnoDurability", "StepConfig"]


class StepConfig(TypedDict, total=False):
    """How the steps of a kind, or of a tool, are made: as :func:`dalsegno.tool` has it."""

    effect: Effect
    retries: int | Retry
    timeout: Time | None
    probe: Callable[..., Any] | None
    not_done: Iterable[type[BaseException]]


_READ: StepConfig = {"effect": "read_only"}
_AGAIN: StepConfig = {"effect": "idempotent"}
_ONCE: StepConfig = {"effect": "once"}
_ANY: TypeAdapter[Any] = TypeAdapter(Any)

_NEVER_THE_SAME = frozenset({"timestamp", "run_id", "conversation_id"})
"""What messages say of themselves, and is another at each replay."""


def _unserialisable(error: Exception) -> BaseException:
    return Terminal(f"it cannot be recorded: {error}")


class DalsegnoDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes the runs of an agent durable, where they are in the code of a run of ours; elsewhere it changes nothing.

    >>> agent = Agent("openai:gpt-5", name="clerk", capabilities=[DalsegnoDurability()])

    Requests to models are made again after a crash in the middle of them. A call of a tool is ``once`` if nothing is
    said: after a crash in the middle of it a person is asked, or its probe; ``tool_config`` says it for all tools,
    ``metadata={"dalsegno": {"effect": "read_only"}}`` for one, ``metadata={"dalsegno": False}`` makes it no step.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Dalsegno",
        durable_unit_noun="step",
        durable_unit_plural="steps",
        durable_container_noun="run",
        codec=JSON_CODEC,
        serialization_failure=_unserialisable,
        wrapped_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        # What is given to one call of `run` was not made steps, and would run again at each replay.
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        journal_discovery=True,
        # Calls of tools are named by their ids, so it does not matter which comes first.
        sequential_tools_in_durable_context=False,
        tool_config_key="dalsegno",
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        model_config: StepConfig | None = None,
        tool_config: StepConfig | None = None,
        mcp_config: StepConfig | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._started: dict[str, Scope] = {}
        self._model_config: StepConfig = {**_READ, **(model_config or {})}
        self._tool_config: StepConfig = {**_ONCE, **(tool_config or {})}
        self._mcp_config: StepConfig = {**_ONCE, **(mcp_config or {})}

    @property
    def in_durable_context(self) -> bool:
        """Whether this is the code of a run, and not inside of a step."""
        place = PLACE.get()
        return isinstance(place, Frame) and place.execution.tasks is not None

    def get_default_run_id(self) -> str | None:
        """The same at every replay."""
        scope = here("an agent of Pydantic AI")
        if scope is None:
            return None
        count = next(_COUNTS.setdefault(scope.execution, itertools.count()))
        run_id = f"{scope.ctx.run}:{self.name}:{count}"
        self._started[run_id] = scope
        return run_id

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """The same at every replay."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """Recorded, so that the time limit of a run counts from when it first began."""
        return await _steps.now().awaited() if self.in_durable_context else None

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """All that the agent does is in the scope where it was started."""
        # It is called in a task of the framework's, which has another scope.
        started = self._started.pop(ctx.run_id or "", None)
        with inside(started or here("an agent of Pydantic AI")):
            return await super().wrap_run(ctx, handler=handler)

    def get_durable_operation_backend(self) -> DurableOperationBackend[StepConfig]:
        """How operations are made steps."""

        def for_tool(operation_id: DurableOperationId, tool: Any, tool_name: str) -> StepConfig | Literal[False]:
            if not isinstance(operation_id, ToolsetCallToolId):
                return _READ
            base = self._mcp_config if operation_id.toolset_kind == "mcp" else self._tool_config
            return cast("StepConfig | Literal[False]", self._build_resolve_tool_config(base)(tool, tool_name))

        return _Backend(
            agent_name=self.name,
            default_model_id=self.default_model_id,
            config=RoleBasedOperationConfig(
                model=self._model_config,
                event=_AGAIN,
                capability=_AGAIN,
                tool=self._tool_config,
                resolve_tool=for_tool,
            ),
        )

    def _toolset_base_config(self, kind: Any) -> StepConfig:
        return self._mcp_config if kind == "mcp" else self._tool_config


class _Backend(JournalCallableOperationBackend[StepConfig]):
    """Each operation is a step."""

    @override
    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: StepConfig,
    ) -> object:
        scope = current("an agent of Pydantic AI")
        if scope is None:
            return await body()
        call_id = next((part.tool_call_id for part in cache_key if isinstance(part, RunContext)), None)
        is_call = isinstance(operation_id, ToolsetCallToolId) and call_id
        is_model = isinstance(operation_id, ModelRequestId | ModelCompactMessagesId)

        async def code() -> Any:
            result = await body()
            if is_model:
                _count(result)
            return result

        # The id is of the model's answer, which is recorded: it is the same in whatever order calls are made.
        called = f"{name} {call_id}" if is_call else name
        return await step(scope, called, _said(cache_key), code, Manner(**config), is_model)


def _count(result: Any) -> None:
    usage = result.get("usage") if isinstance(result, dict) else None
    if isinstance(usage, dict):
        current_call().tokens(int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0))


def _said(cache_key: tuple[object, ...]) -> list[Any]:
    """What goes into an operation, for the record: what is said, and what a tool is given."""
    said: list[Any] = []
    for part in cache_key:
        if isinstance(part, list) and all(isinstance(item, ModelRequest | ModelResponse) for item in part):
            said.append(_lasting(ModelMessagesTypeAdapter.dump_python(part, mode="json")))
        elif isinstance(part, ModelResponse):
            said.append(_lasting(ModelMessagesTypeAdapter.dump_python([part], mode="json")))
        elif isinstance(part, str | int | float | bool):
            said.append(part)
        elif isinstance(part, dict):
            said.append(_lasting(_ANY.dump_python(part, mode="json", fallback=str, warnings=False)))
    return said


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in _NEVER_THE_SAME}
    return [_lasting(item) for item in value] if isinstance(value, list) else value


_COUNTS: weakref.WeakKeyDictionary[Execution, itertools.count[int]] = weakref.WeakKeyDictionary()
"""How many agents were run in an execution of a run."""


class DalsegnoAgent(WrapperAgent[AgentDepsT, OutputDataT]):
    """An agent whose runs are durable, where they are in the code of a run of ours; elsewhere it is the agent itself.

    It needs a ``name``, and each of its toolsets an ``id``: they are in the names of steps, and must not change while
    runs are under way. What it takes is what :class:`DalsegnoDurability` takes.
    """

    def __init__(
        self,
        wrapped: AbstractAgent[AgentDepsT, OutputDataT],
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        model_config: StepConfig | None = None,
        tool_config: StepConfig | None = None,
        mcp_config: StepConfig | None = None,
    ) -> None:
        super().__init__(wrapped)
        self.durability: DalsegnoDurability[AgentDepsT] = DalsegnoDurability(
            models=models,
            event_stream_handler=event_stream_handler,
            name=name,
            model_config=model_config,
            tool_config=tool_config,
            mcp_config=mcp_config,
        )

    @asynccontextmanager
    async def iter(self, *args: Any, **kwargs: Any) -> AsyncGenerator[AgentRun[AgentDepsT, Any]]:
        """As the agent's."""
        kwargs["capabilities"] = [*(kwargs.get("capabilities") or ()), self.durability]
        async with self.wrapped.iter(*args, **kwargs) as run:
            yield run

    def __getattr__(self, name: str) -> Any:
        # Its decorators: `tool`, `tool_plain`, `output_validator` …
        if name == "wrapped":
            raise AttributeError(name)
        return getattr(self.wrapped, name)
