"""The same in real processes: each lives in a folder, and ends with SIGKILL at its moment."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._agents import Agent
from .._dalsegno import Crash
from .._errors import BadUse
from .life import Job, Stuck, honest
from .world import Ledger

_SECONDS = 120.0


@dataclass(frozen=True)
class Lived:
    """What came of a process."""

    result: tuple[bool, str] | None
    """`None` if it was killed."""
    count: int
    moments: list[str]


def live_in_process(job: Job, agent: Agent[..., Any], folder: Path, dies_at: int | None) -> Lived:
    """Starts a process for a job, and waits for its end."""
    told = {
        "agents": [_where(known) for known in job.agents],
        "agent": agent.name,
        "given": job.given,
        "folder": str(folder),
        "dies_at": dies_at,
        "durability": job.durability,
        "path": sys.path,
    }
    command = [sys.executable, "-c", "from dalsegno._crash.processes import main; main()"]
    process = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, timeout=_SECONDS)
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    moments = [moment for line in lines for moment in line.get("moments", [])]
    if process.returncode == -signal.SIGKILL:
        return Lived(None, 0, moments)
    if process.returncode != 0 or not lines or "result" not in lines[-1]:
        raise Stuck(f"the process ended with {process.returncode}: {process.stderr[-4000:]}")
    return Lived(tuple(lines[-1]["result"]), lines[-1]["count"], moments)


def _where(agent: Agent[..., Any]) -> tuple[str, str, str]:
    """Where another process finds an agent: its module, the module's file, and its own name."""
    module = sys.modules[agent.code.__module__]
    file = getattr(module, "__file__", None)
    if "<locals>" in agent.code.__qualname__ or file is None:
        raise BadUse(f"agent {agent.name!r} is not at the top of a module: another process cannot find it there")
    return module.__name__, file, agent.name


def _find(module: str, file: str, name: str) -> Agent[..., Any]:
    if module == "__main__":
        module = "dalsegno_crash_main"
    if module not in sys.modules:
        try:
            importlib.import_module(module)
        except ImportError:
            spec = importlib.util.spec_from_file_location(module, file)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[module] = made = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(made)
    for found in vars(sys.modules[module]).values():
        if isinstance(found, Agent) and found.name == name:
            return found
    raise BadUse(f"there is no agent {name!r} in {file}")


def main() -> None:
    """The other process."""
    told = json.loads(sys.stdin.read())
    sys.path[:] = told["path"]
    folder = Path(told["folder"])
    crash, ledger = Crash(False), Ledger(folder / "ledger")
    agents = [_find(*where) for where in told["agents"]]
    crash.begin_life(told["dies_at"])

    def say(**what: Any) -> None:
        os.write(1, (json.dumps({**what, "moments": crash.names}) + "\n").encode())

    def kill() -> None:
        say()
        os.kill(os.getpid(), signal.SIGKILL)

    place, durability = str(folder / "store"), told["durability"]
    job = Job(crash, ledger, place, agents, told["agent"], told["given"], honest, durability, kill)
    result = job.live()
    say(result=result, count=crash.count)
