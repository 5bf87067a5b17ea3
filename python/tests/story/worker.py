"""A worker of the story: the 12-step agents, plain and async, and the person whom they ask.

    worker.py STORE FOLDER PORT RUNS

| step | effect |
|---|---|
| `outline` | a model call |
| `research`, a plan step: `ask` of three services, then the model's `summarise` | read-only |
| `save_summary` | a file, idempotent |
| `pace` | a decision |
| `write_letter` | a model call |
| `save_letter` | a file, idempotent |
| `publish` | a person's approval |
| `notify` | once, with a probe |
| `book` | idempotent, by its key |
| `farewell` | a model call |

Prints `open` when it is at work, and the results as JSON when all runs are done.
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import dalsegno
from dalsegno import aio

STORE, FOLDER, PORT, RUNS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])


@dataclass
class Trip:
    notified: str
    booked: str
    digest: str


def send(method: str, path: str, run: str, body: str = "") -> tuple[int, str]:
    call = dalsegno.current_call()
    headers = {"x-run": run, "idempotency-key": call.key, "x-fence": str(call.token)}
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    try:
        connection.request(method, path, body.encode(), headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def ok(reply: tuple[int, str]) -> str:
    if reply[0] != 200:
        raise dalsegno.Terminal(f"{reply[0]}: {reply[1]}")
    return reply[1]


@dalsegno.model
def think(run: str, prompt: str) -> str:
    answer = ok(send("POST", "/model", run, prompt))
    dalsegno.current_call().tokens(len(prompt), len(answer))
    return answer


@dalsegno.tool(effect="read_only")
def ask(run: str, source: str) -> str:
    return ok(send("GET", f"/{source}", run))


@dalsegno.tool(effect="idempotent")
def save(run: str, name: str, text: str) -> None:
    folder = FOLDER / run
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{name}.draft"
    with open(draft, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(draft, folder / f"{name}.txt")


def was_notified(run: str, letter: str, *, key: str) -> dalsegno.Probe:
    status, text = send("GET", f"/notifications/{key}", run)
    return {200: dalsegno.happened(text), 404: dalsegno.DID_NOT_HAPPEN}.get(status, dalsegno.UNKNOWN)


@dalsegno.tool(effect="once", probe=was_notified)
def notify(run: str, letter: str) -> str:
    return ok(send("POST", "/notifications", run, letter))


@dalsegno.tool(effect="idempotent")
def book(run: str, destination: str) -> str:
    return ok(send("POST", "/bookings", run, destination))


SOURCES = ("weather", "stock", "news")


def trip_of(*parts: str) -> Trip:
    return Trip(parts[3], parts[4], hashlib.sha256("\n".join(parts).encode()).hexdigest())


@dalsegno.plan_step
def research(run: str) -> str:
    return think(run, "; ".join([ask(run, source) for source in SOURCES]))


@dalsegno.agent
def trip(destination: str) -> Trip:
    run = dalsegno.current_run() or ""
    outline = think(run, destination)
    summary = research(run)
    save(run, "summary", f"{outline}\n{summary}\n")
    pace = dalsegno.decide("pace", "slow" if len(summary) % 2 else "fast", because="of the length")
    letter = think(run, f"{pace}: {summary}")
    save(run, "letter", letter)
    if not dalsegno.approval("publish", letter):
        raise dalsegno.Terminal("nobody may read the letter")
    notified = notify(run, letter)
    booked = book(run, destination)
    return trip_of(outline, summary, letter, notified, booked, think(run, booked))


async def asked(run: str, source: str) -> str:
    return await aio.to_thread(ask, run, source)


@dalsegno.plan_step
async def aresearch(run: str) -> str:
    found = await asyncio.gather(*(asked(run, source) for source in SOURCES))
    return await aio.to_thread(think, run, "; ".join(found))


@dalsegno.agent
async def atrip(destination: str) -> Trip:
    run = dalsegno.current_run() or ""
    outline = await aio.to_thread(think, run, destination)
    summary = await aresearch(run)
    await aio.to_thread(save, run, "summary", f"{outline}\n{summary}\n")
    pace = await aio.decide("pace", "slow" if len(summary) % 2 else "fast", because="of the length")
    letter = await aio.to_thread(think, run, f"{pace}: {summary}")
    await aio.to_thread(save, run, "letter", letter)
    if not await aio.approval("publish", letter):
        raise dalsegno.Terminal("nobody may read the letter")
    notified = await aio.to_thread(notify, run, letter)
    booked = await aio.to_thread(book, run, destination)
    return trip_of(outline, summary, letter, notified, booked, await aio.to_thread(think, run, booked))


def answer(app: dalsegno.App, run: str) -> None:
    """The person."""
    why = app.why(run)
    if why.standing == "waits-for-approval":
        try:
            app.approve(run, "publish", by="a person")
        except dalsegno.Error:
            pass  # It was answered before a crash.
    elif why.standing == "needs-person" and "the process has ended" in why.because:
        app.clear_attention(run)  # It was killed too often: that is what is done here.
    elif why.standing == "needs-person":
        sys.exit(str(why))


def main() -> None:
    with dalsegno.open(STORE, agents=[trip, atrip], durability="strict" if sys.argv[5] == "strict" else None) as app:
        print("open", flush=True)
        for n in range(RUNS):
            app.start(atrip if n % 2 else trip, f"trip-{n}", f"place {n}")
        while open_runs := [info.run for info in app.runs(status=["pending", "running", "checkpointed"])]:
            for run in open_runs:
                answer(app, run)
            time.sleep(0.002)
        results = {f"trip-{n}": asdict(app.get(f"trip-{n}").result()) for n in range(RUNS)}
        same = all(app.replay(f"trip-{n}").same for n in range(RUNS))
        print(json.dumps({"results": results, "same": same}), flush=True)


if __name__ == "__main__":
    main()
