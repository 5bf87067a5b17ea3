"""A server that speaks the OpenAI API as far as agents need it. It answers as a script says, and counts.

Chat completions and responses, streamed or not. A script is given what is asked in one form for both, and gives a text
or calls of tools. It must depend on nothing but what is asked: after a crash the same may be asked again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A call of a tool that the model wants."""

    tool: str
    arguments: dict[str, Any]
    id: str


Reply = str | list[Call]


@dataclass
class Asked:
    """What a model was asked."""

    model: str
    system: str
    users: list[str]
    outputs: list[str]
    """What tools gave."""
    tools: list[str]
    body: dict[str, Any] = field(repr=False)


Script = Callable[[Asked], Reply]


class Server:
    """A running server."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                is_chat = self.path.endswith("/chat/completions")
                asked = _chat_asked(body) if is_chat else _responses_asked(body)
                with outer.lock:
                    outer.asked.append(asked)
                reply = outer.script(asked)
                events = _chat(asked, reply) if is_chat else _responses(asked, reply)
                if body.get("stream"):
                    parts = [_event(event, is_chat) for event in events[1]]
                    parts += ["data: [DONE]\n\n"] if is_chat else []
                    self._send("".join(parts), "text/event-stream")
                else:
                    self._send(json.dumps(events[0]), "application/json")

            def _send(self, text: str, kind: str) -> None:
                data = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    @contextmanager
    def running(self) -> Iterator[Server]:
        thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()


def _event(event: dict[str, Any], is_chat: bool) -> str:
    begin = "" if is_chat else f"event: {event['type']}\n"
    return f"{begin}data: {json.dumps(event)}\n\n"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


# Chat completions


def _chat_asked(body: dict[str, Any]) -> Asked:
    messages = body["messages"]
    return Asked(
        body["model"],
        "".join(_text(m["content"]) for m in messages if m["role"] in ("system", "developer")),
        [_text(m["content"]) for m in messages if m["role"] == "user"],
        [_text(m["content"]) for m in messages if m["role"] == "tool"],
        [tool["function"]["name"] for tool in body.get("tools", ())],
        body,
    )


def _chat(asked: Asked, reply: Reply) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    head = {"id": "chatcmpl-1", "created": 1, "model": asked.model}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    message: dict[str, Any] = {"role": "assistant", "content": reply if isinstance(reply, str) else None}
    if not isinstance(reply, str):
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
            }
            for call in reply
        ]
    reason = "stop" if isinstance(reply, str) else "tool_calls"
    whole = {
        **head,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": usage,
    }
    deltas: list[dict[str, Any]] = []
    if isinstance(reply, str):
        deltas += [{"role": "assistant", "content": reply[at : at + 4]} for at in range(0, len(reply), 4)]
    else:
        deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(message["tool_calls"])]
    chunk = {**head, "object": "chat.completion.chunk"}
    chunks = [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    chunks.append({**chunk, "choices": [], "usage": usage})
    return whole, chunks


# Responses


def _responses_asked(body: dict[str, Any]) -> Asked:
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return Asked(
        body["model"],
        body.get("instructions") or "",
        [_text(item["content"]) for item in items if item.get("role") == "user"],
        [_text(item["output"]) for item in items if item.get("type") == "function_call_output"],
        [tool["name"] for tool in body.get("tools") or () if "name" in tool],
        body,
    )


def _responses(asked: Asked, reply: Reply) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    output: list[dict[str, Any]]
    if isinstance(reply, str):
        content = [{"type": "output_text", "text": reply, "annotations": []}]
        output = [
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content},
        ]
    else:
        output = [
            {
                "type": "function_call",
                "id": f"fc_{call.id}",
                "call_id": call.id,
                "name": call.tool,
                "arguments": json.dumps(call.arguments),
                "status": "completed",
            }
            for call in reply
        ]
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 15,
    }
    whole: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": asked.model,
        "status": "completed",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}
    ]
    for at, item in enumerate(output):
        begun = {**item, "content": []} if item["type"] == "message" else {**item, "arguments": ""}
        events.append({"type": "response.output_item.added", "output_index": at, "item": begun})
        if item["type"] == "message":
            where = {"item_id": item["id"], "output_index": at, "content_index": 0}
            part = {"type": "output_text", "text": "", "annotations": []}
            events.append({"type": "response.content_part.added", **where, "part": part})
            text = item["content"][0]["text"]
            for begin in range(0, len(text), 4):
                delta = text[begin : begin + 4]
                events.append({"type": "response.output_text.delta", **where, "delta": delta, "logprobs": []})
            events.append({"type": "response.output_text.done", **where, "text": text, "logprobs": []})
            events.append({"type": "response.content_part.done", **where, "part": {**part, "text": text}})
        else:
            done = {"item_id": item["id"], "output_index": at, "arguments": item["arguments"], "name": item["name"]}
            events.append({"type": "response.function_call_arguments.done", **done})
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return whole, [{**event, "sequence_number": at} for at, event in enumerate(events)]
