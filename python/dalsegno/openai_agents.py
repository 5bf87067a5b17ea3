"""The OpenAI Agents SDK, crash-safe: what its agents ask of models and tools are steps of a run.

>>> import dalsegno
>>> from agents import Agent, Runner
>>> from dalsegno import openai_agents          # from here on Runner knows runs of ours
>>>
>>> @openai_agents.function_tool(effect="idempotent")
... async def book(flight: str) -> str:
...     return await airline.book(flight, idempotency_key=dalsegno.current_call().key)
...
>>> clerk = Agent(name="clerk", instructions="Book flights.", tools=[book])
>>>
>>> @dalsegno.agent
... async def travel(request: str) -> str:
...     result = await Runner.run(clerk, request)
...     return str(result.final_output)
"""

from __future__ import annotations

import asyncio
import dataclasses
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, overload

import agents
from agents import Agent, FunctionTool, Handoff, Model, ModelProvider, ModelResponse, RunConfig, Tool
from agents.items import ItemHelpers, TResponseStreamEvent
from agents.result import RunResult, RunResultStreaming
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.tool_context import ToolContext
from openai.types.responses import Response, ResponseCompletedEvent
from pydantic import BaseModel, TypeAdapter

from ._errors import BadUse
from ._frames import PLACE, Frame, current_call
from ._openai_session import DalsegnoSession
from ._scopes import SCOPE, Effect, Manner, Scope, current, here, inside, step
from ._times import Time
from ._tools import Retry

__all__ = ["DalsegnoSession", "DurableModel", "DurableProvider", "DurableRunner", "durable", "function_tool"]

_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_AT_THE_PROVIDER = (
    agents.CodeInterpreterTool,
    agents.FileSearchTool,
    agents.HostedMCPTool,
    agents.ImageGenerationTool,
    agents.ToolSearchTool,
    agents.WebSearchTool,
)
"""Tools that the provider of the model uses: what they do is a part of its answer."""
_FAILED = ("response.failed", "response.incomplete", "response.error", "error")
"""Events after which there is no answer."""
_MANNER = "__dalsegno_manner__"
_ASKED = Manner(effect="read_only")


class DurableRunner(AgentRunner):
    """What ``Runner`` runs agents with, once this module is imported: in the code of a run, their calls are steps.

    Elsewhere it is the runner that was there before.
    """

    def __init__(self, runner: AgentRunner) -> None:
        self._runner = runner

    async def run(self, starting_agent: Agent[Any], input: Any, **kwargs: Any) -> RunResult:
        """As ``Runner.run``."""
        scope = _begun("Runner.run")
        if scope is None:
            return await self._runner.run(starting_agent, input, **kwargs)
        with inside(scope):
            return await self._runner.run(durable(starting_agent), input, **_with_provider(kwargs))

    def run_sync(self, starting_agent: Agent[Any], input: Any, **kwargs: Any) -> RunResult:
        """As ``Runner.run_sync``; not in the code of a run."""
        _begun("Runner.run")
        return self._runner.run_sync(starting_agent, input, **kwargs)

    def run_streamed(self, starting_agent: Agent[Any], input: Any, **kwargs: Any) -> RunResultStreaming:
        """As ``Runner.run_streamed``. What a model says comes as it says it; of a call that is over, all at once."""
        scope = _begun("Runner.run_streamed")
        if scope is None:
            return self._runner.run_streamed(starting_agent, input, **kwargs)
        with inside(scope):
            return self._runner.run_streamed(durable(starting_agent), input, **_with_provider(kwargs))


def _begun(what: str) -> Scope | None:
    """The scope for all that is called from here on."""
    given = SCOPE.get()
    place = PLACE.get()
    if given is not None and given.is_for_next and isinstance(place, Frame) and given.execution is place.execution:
        return given._replace(is_for_next=False)
    return here(what)


def _with_provider(options: dict[str, Any]) -> dict[str, Any]:
    session = options.get("session")
    if session is not None and type(session).__module__.partition(".")[0] == "agents":
        raise BadUse(
            f"a {type(session).__name__} in a run would be read and added to again whenever the run is taken up: give "
            "a dalsegno.openai_agents.DalsegnoSession"
        )
    config = options.get("run_config") or RunConfig()
    if isinstance(config, dict):
        config = RunConfig(**config)
    model = config.model
    return {
        **options,
        "run_config": dataclasses.replace(
            config,
            model=_durable_model(model) if isinstance(model, Model) else model,
            model_provider=DurableProvider(config.model_provider),
        ),
    }


# Tools


@overload
def function_tool(code: Callable[..., Any], /) -> FunctionTool: ...
@overload
def function_tool(
    *,
    effect: Effect = "once",
    retries: int | Retry = 1,
    timeout: Time | None = None,
    probe: Callable[..., Any] | None = None,
    not_done: Iterable[type[BaseException]] = (),
    **options: Any,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def function_tool(
    code: Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = "once",
    retries: int | Retry = 1,
    timeout: Time | None = None,
    probe: Callable[..., Any] | None = None,
    not_done: Iterable[type[BaseException]] = (),
    **options: Any,
) -> Any:
    """As the SDK's ``function_tool``, and how its calls are made, as :func:`dalsegno.tool` has it.

    A tool that was made by the SDK's own decorator is taken as ``once``. The probe is asked with the key of the call.
    What the SDK makes of an exception (by default a text for the model) is the result of the call; so that an exception
    is one, as ``retries`` need it, say ``failure_error_function=None``.
    """
    manner = Manner(effect, retries, timeout, probe, tuple(not_done))

    def make(code: Callable[..., Any]) -> FunctionTool:
        tool = agents.function_tool(code, **options)
        setattr(tool, _MANNER, manner)
        return tool

    return make if code is None else make(code)


def _durable_tool(tool: Tool) -> Tool:
    if isinstance(tool, _AT_THE_PROVIDER) or getattr(tool, "__dalsegno_durable__", False):
        return tool
    if not isinstance(tool, FunctionTool):
        raise BadUse(
            f"tool {tool.name!r} of the Agents SDK works in this process, and its calls cannot be made steps: "
            "give the agent a function tool instead"
        )
    manner: Manner = getattr(tool, _MANNER, Manner())
    call_it = tool.on_invoke_tool

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        scope = current("a tool of the Agents SDK")
        if scope is None:
            return await call_it(context, arguments)
        # The id is of the model's answer, which is recorded. So it does not matter which call comes first.
        name = f"{tool.name} {context.tool_call_id}"
        if tool._is_agent_tool:
            with inside(scope.branch(name)._replace(is_for_next=True)):
                return await call_it(context, arguments)

        async def code() -> Any:
            return _plain(await call_it(context, arguments))

        return await step(scope, name, arguments, code, manner)

    made = dataclasses.replace(tool, on_invoke_tool=invoke)
    setattr(made, "__dalsegno_durable__", True)  # noqa: B010
    if tool._is_agent_tool:
        made._agent_instance = tool._agent_instance
    return made


def _plain(output: Any) -> Any:
    """What a tool gave, as JSON: as the model is given it."""
    if isinstance(output, str | int | float | bool | None):
        return output
    if isinstance(output, BaseModel):
        structured = ItemHelpers._convert_tool_output_as_structured(output)
        return output.model_dump(mode="json") if structured is not None else str(output)
    if isinstance(output, list | tuple) and any(isinstance(item, BaseModel) for item in output):
        return [_plain(item) for item in output]
    return output


# Agents


def durable(agent: Agent[Any]) -> Agent[Any]:
    """An agent whose calls of models and tools are steps, and those of all agents that it hands over to.

    ``Runner`` does it by itself.
    """
    if getattr(agent, "__dalsegno_durable__", False):
        return agent
    made = _MADE.get(id(agent))
    if made is not None and made[0]() is agent and _same(agent, made[1]):
        return made[1]
    copy = agent.clone()
    copy.__class__ = _durable_class(type(agent))
    # Known before its handoffs are looked at: they may lead back to it.
    key = id(agent)
    _MADE[key] = (weakref.ref(agent, lambda _: _MADE.pop(key, None)), copy)
    copy.tools = [_durable_tool(tool) for tool in agent.tools]
    copy.handoffs = [_durable_handoff(handoff) for handoff in agent.handoffs]
    if isinstance(agent.model, Model):
        copy.model = _durable_model(agent.model)
    setattr(copy, "__dalsegno_made_from__", _parts(agent))  # noqa: B010
    return copy


_CLASSES: dict[type[Agent[Any]], type[Agent[Any]]] = {}


def _durable_class(of: type[Agent[Any]]) -> type[Agent[Any]]:
    """The class of durable agents: what MCP servers offer is durable, too."""
    if of in _CLASSES:
        return _CLASSES[of]

    async def get_mcp_tools(self: Agent[Any], run_context: Any) -> list[Tool]:
        return [_durable_tool(tool) for tool in await of.get_mcp_tools(self, run_context)]

    more = {"__dalsegno_durable__": True, "get_mcp_tools": get_mcp_tools}
    return _CLASSES.setdefault(of, type(of.__name__, (of,), more))


_MADE: dict[int, tuple[weakref.ref[Agent[Any]], Agent[Any]]] = {}


def _parts(agent: Agent[Any]) -> dict[str, Any]:
    parts = {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}
    return {**parts, "tools": list(agent.tools), "handoffs": list(agent.handoffs)}


def _same(agent: Agent[Any], made: Agent[Any]) -> bool:
    """Whether an agent is as it was when its durable one was made; or that is still being made."""
    parts = getattr(made, "__dalsegno_made_from__", None)
    return parts is None or all(parts[name] is value or parts[name] == value for name, value in _parts(agent).items())


def _durable_handoff(handoff: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | Handoff[Any, Any]:
    if isinstance(handoff, Agent):
        return durable(handoff)
    invoke = handoff.on_invoke_handoff

    async def invoke_durable(context: Any, arguments: str) -> Any:
        return durable(await invoke(context, arguments))

    return dataclasses.replace(handoff, on_invoke_handoff=invoke_durable)


# Models


def _durable_model(model: Model) -> Model:
    return model if isinstance(model, DurableModel) else DurableModel(model)


class DurableProvider(ModelProvider):
    """Gives the models of another provider, and each call of them is a step."""

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider

    def get_model(self, model_name: str | None) -> Model:
        """A model by its name."""
        return _durable_model(self._provider.get_model(model_name))

    async def aclose(self) -> None:
        """Lets go of what the provider holds."""
        await self._provider.aclose()


class DurableModel(Model):
    """A model whose calls are steps in a run, and plain calls elsewhere."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def close(self) -> None:
        """Lets go of what the model holds."""
        await self._model.close()

    def get_retry_advice(self, request: Any) -> Any:
        """What the model says about trying again."""
        return self._model.get_retry_advice(request)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Asks the model, once."""
        scope = current("a model of the Agents SDK")
        if scope is None:
            return await self._model.get_response(*args, **kwargs)

        async def ask() -> Any:
            response = await self._model.get_response(*args, **kwargs)
            current_call().tokens(response.usage.input_tokens, response.usage.output_tokens)
            return _RESPONSE.dump_python(response, mode="json", by_alias=True, exclude_unset=True, warnings=False)

        answered = await step(scope, "model", _request(args, kwargs), ask, _ASKED, is_model=True)
        return _RESPONSE.validate_python(answered)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Asks the model, once. Its events come as they are made; that it is complete, when that is recorded."""
        scope = current("a model of the Agents SDK")
        if scope is None:
            async for event in self._model.stream_response(*args, **kwargs):
                yield event
            return
        events: asyncio.Queue[TResponseStreamEvent | None] = asyncio.Queue()
        last: list[ResponseCompletedEvent] = []

        async def ask() -> Any:
            async for event in self._model.stream_response(*args, **kwargs):
                if isinstance(event, ResponseCompletedEvent):
                    last[:] = [event]
                elif event.type not in _FAILED:
                    # That it failed is told when that is recorded: who hears of it goes another way from there on.
                    events.put_nowait(event)
            if not last:
                raise agents.ModelBehaviorError("the stream of the model ended without an answer")
            response = last[0].response
            if response.usage is not None:
                current_call().tokens(response.usage.input_tokens, response.usage.output_tokens)
            return response.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)

        made = step(scope, "model", _request(args, kwargs), ask, _ASKED, is_model=True)
        asked = asyncio.ensure_future(made)
        asked.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (passed := await events.get()) is not None:
                yield passed
        finally:
            if not asked.done():
                asked.cancel()
        answered = await asked
        if last:
            yield last[0]
        else:
            response = Response.model_validate(answered)
            yield ResponseCompletedEvent(response=response, type="response.completed", sequence_number=0)


def _request(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a model is asked, for the record: what is said, and which tools it is offered."""
    names = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    tools = [tool.name for tool in given.get("tools") or ()]
    tools += [handoff.tool_name for handoff in given.get("handoffs") or ()]
    asked = given.get("input")
    return {
        "instructions": given.get("system_instructions"),
        "input": asked if isinstance(asked, str) else _ANY.dump_python(asked, mode="json"),
        "tools": tools,
    }


if not isinstance(get_default_agent_runner(), DurableRunner):
    set_default_agent_runner(DurableRunner(get_default_agent_runner()))
