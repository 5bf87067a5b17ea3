"""Two agents that share a memory: one researches and records what it found, with sources; the other answers from it.

    python examples/shared_memory.py /tmp/shared

**Kill me**: start it, and after a second or two end it with Ctrl-C, or for real:

    python examples/shared_memory.py /tmp/shared & sleep 2; kill -9 $!

Start it again: it goes on where it was. Each fact is in the memory once, with the source it was taken from, and the
answer cites the facts that were found the first time, whatever was added since. `/tmp/shared/calls.txt` has a line for
each time that the model was asked. To see what the agents know, and how it came to be there:

    dalsegno --store /tmp/shared/store memory ls whales
    dalsegno --store /tmp/shared/store show answerer
"""

from __future__ import annotations

import sys
from pathlib import Path

import local_model

import dalsegno

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "shared")


@dalsegno.model(retries=3, timeout=60)
def ask(prompt: str) -> str:
    return local_model.complete(FOLDER, prompt)


@dalsegno.tool(effect="read_only")
def look_up(what: str) -> tuple[str, str]:
    """What a library says about something, and where."""
    return local_model.FACTS[what], f"whales.txt#{what}"


@dalsegno.agent
def researcher(topic: str) -> list[int]:
    """Records what it finds. Each fact is added once, whenever this is killed."""
    memory = dalsegno.memory(topic, by="researcher")
    added = []
    for what in ask(f"Plan a report on {topic}").splitlines():
        text, source = look_up(what)
        fact = ask(f"Summarise {what}: {text}")
        added.append(memory.add(fact, title=what, sources=[source], tags=["biology"]))
    return added


@dalsegno.agent
def answerer(topic: str, question: str) -> str:
    """Answers from what the other one has recorded, and cites it. It never reads the library itself."""
    memory = dalsegno.memory(topic, by="answerer")
    found = memory.search(question, kinds="fact", limit=2, context_bytes=2000)
    if not found.hits:
        return "Nobody has recorded anything about that."
    known = "\n".join(f"[{hit.id}] {hit.text}" for hit in found.hits)
    answer = ask(f"Answer: {question}\n{known}")
    # What the answer stands on is kept as well: for whoever asks the same, and for whoever doubts it.
    cited = [source for hit in found.hits for source in hit.sources]
    memory.add(answer, "decision", title=question, sources=cited)
    notes = "\n".join(f"[{hit.id}] {', '.join(hit.sources)}" for hit in found.hits)
    return f"{answer}\n\n{notes}\n(as of version {found.version.sequence} of {topic!r})"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with dalsegno.open(FOLDER / "store", agents=[researcher, answerer]) as app:
        for recovered in app.recovered():
            print(recovered)
        app.run(researcher, "researcher", "whales")
        print(app.run(answerer, "answerer", "whales", "How far is the song of a whale heard?"))
        print("\nWhat they know:")
        for document in app.memory("whales").list():
            print(f"  {document.id}. {document.text} ({document.kind}, {document.by}: {', '.join(document.sources)})")


if __name__ == "__main__":
    main()
