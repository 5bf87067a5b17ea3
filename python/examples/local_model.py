"""A model that needs no network: it answers by rules, slowly enough to be killed in the middle."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

PACE = float(os.environ.get("EXAMPLE_PACE", "0.5"))
"""How long an answer takes, in seconds."""

FACTS = {
    "size": "A blue whale is up to 30 m long, and its heart weighs as much as a piano.",
    "food": "It eats four tonnes of krill a day, which are a few centimetres long.",
    "song": "Its song is heard over a thousand kilometres, at 188 decibels.",
}


def complete(folder: Path, prompt: str) -> str:
    """Answers a prompt, and notes in ``calls.txt`` that it was asked: a real one would send a bill."""
    with (folder / "calls.txt").open("a") as calls:
        calls.write(prompt.splitlines()[0] + "\n")
    time.sleep(PACE)
    if prompt.startswith("Plan"):
        return "\n".join(FACTS)
    if prompt.startswith("Summarise"):
        return prompt.split(": ", 1)[1].split(",")[0] + "."
    if prompt.startswith("Answer"):
        # It believes the first thing it is told, and says who told it.
        return prompt.splitlines()[1].split("] ", 1)[1] + " " + prompt.splitlines()[1].split(" ", 1)[0]
    if prompt.startswith("Mend"):
        return json.dumps({"file": "sums.py", "text": "def add(a: int, b: int) -> int:\n    return a + b\n"})
    if prompt.startswith("Read this complaint"):
        return json.dumps({"order": "A-17", "amount": 4200, "reason": "the teapot came in pieces"})
    return "Dear customer, your money is on its way. We are sorry about the teapot."


def answer(folder: Path, prompt: str) -> Any:
    """The same, of a prompt that wants JSON."""
    return json.loads(complete(folder, prompt))
