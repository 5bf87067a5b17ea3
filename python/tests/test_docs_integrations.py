"""The code in docs/python-integrations.md runs, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from agents import set_tracing_disabled
from openai_server import Asked, Call, Reply, Server

PAGE = Path(__file__).parents[2] / "docs" / "python-integrations.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def script(asked: Asked) -> Reply:
    return f"Done: {asked.outputs[-1][:11]}." if asked.outputs else [Call("book", {"city": "Rome"}, "b1")]


def test_there_are_blocks() -> None:
    assert len(BLOCKS) == 4


@pytest.mark.parametrize("block", range(4))
def test_a_block(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_tracing_disabled(True)
    monkeypatch.chdir(tmp_path)
    with Server(script).running() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        code = BLOCKS[block]
        exec(compile(code, f"{PAGE.name}, block {block}", "exec"), {"__name__": f"block{block}"})
    said = capsys.readouterr().out.splitlines()
    expected = re.findall(r"print\(.*#\s*(.*)", code) or ["Done: booked Rome."]
    assert said == expected
