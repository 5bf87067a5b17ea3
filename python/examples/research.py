"""A research agent: plans, looks things up beside each other, and writes a report.

    python examples/research.py /tmp/research

**Kill me**: start it, and end it half-way with Ctrl-C, or for real:

    EXAMPLE_PACE=2 python examples/research.py /tmp/research & sleep 3; kill -9 $!

`EXAMPLE_PACE` is how many seconds the model takes for an answer, half a second if nothing is said.

Start it again: it goes on where it was. `/tmp/research/calls.txt` has a line for each time that the model was asked; no
question is there twice, except one that was being answered when you killed it. The report is written once.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import local_model

import dalsegno
from dalsegno import aio

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "research")


@dalsegno.model(retries=3, timeout=60)
def ask(prompt: str) -> str:
    return local_model.complete(FOLDER, prompt)


@dalsegno.tool(effect="read_only")
def look_up(what: str) -> str:
    return local_model.FACTS[what]


@dalsegno.tool(effect="idempotent")
def write_report(text: str) -> int:
    """Writing the same file again does no harm."""
    (FOLDER / "report.txt").write_text(text)
    return len(text)


async def part(what: str) -> str:
    """One part of the report: its steps have a scope of their own, so that parts may come in any order."""
    found = await aio.to_thread(look_up, what)
    return await aio.to_thread(ask, f"Summarise {what}: {found}")


@dalsegno.agent
async def research(topic: str) -> str:
    plan = await aio.to_thread(ask, f"Plan a report on {topic}")
    parts = await asyncio.gather(*(part(what) for what in plan.splitlines()))
    text = f"# {topic}\n\n" + "\n".join(parts) + "\n"
    await aio.to_thread(write_report, text)
    return text


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with dalsegno.open(FOLDER / "store", agents=[research]) as app:
        for recovered in app.recovered():
            print(recovered)
        print(app.run(research, "on whales", "whales"))


if __name__ == "__main__":
    main()
