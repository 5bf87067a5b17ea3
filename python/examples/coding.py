"""A coding agent: mends a program in a git branch of its own, until its test passes.

    python examples/coding.py /tmp/coding

**Kill me** at any moment (`kill -9`), and start me again: there is one commit on the branch `agent`, whenever that was.
A commit is made `once`: it carries the key of its step, so that a probe can find out whether it happened.

**Meddle**: kill me while the model is asked, and commit something to the branch yourself:

    EXAMPLE_PACE=5 python examples/coding.py /tmp/coding & sleep 3; kill -9 $!
    git -C /tmp/coding/repository commit --allow-empty -m mine

Start me again: the run notes at each checkpoint where the branch was, sees that it has moved, and asks you before it
goes on. `python examples/coding.py /tmp/coding accept` accepts it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import local_model

import dalsegno
from dalsegno import Resource

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "coding")
REPOSITORY = FOLDER / "repository"
BRANCH = Resource.git(REPOSITORY, "agent")
TEST = "from sums import add\nassert add(2, 2) == 4, add(2, 2)\n"


def git(*command: str) -> str:
    who = ["-c", "user.name=agent", "-c", "user.email=agent@example.org"]
    ran = subprocess.run(["git", "-C", str(REPOSITORY), *who, *command], check=True, capture_output=True, text=True)
    return ran.stdout.strip()


@dalsegno.model
def mend(program: str, problem: str) -> dict[str, str]:
    found: dict[str, str] = local_model.answer(FOLDER, f"Mend this program\n{program}\n{problem}")
    return found


@dalsegno.tool(effect="read_only")
def read(file: str) -> str:
    return (REPOSITORY / file).read_text()


@dalsegno.tool(effect="read_only")
def run_test() -> str:
    """Nothing if it passes, else what it says."""
    ran = subprocess.run([sys.executable, "-c", TEST], cwd=REPOSITORY, capture_output=True, text=True)
    return ran.stderr


@dalsegno.tool(effect="idempotent")
def edit(file: str, text: str) -> None:
    (REPOSITORY / file).write_text(text)


def was_committed(key: str) -> dalsegno.Probe:
    found = git("log", "agent", "--format=%H", f"--grep={key}")
    return dalsegno.happened(found) if found else dalsegno.DID_NOT_HAPPEN


@dalsegno.tool(effect="once", probe=was_committed)
def commit(words: str, *, key: str = "") -> str:
    # A process that was killed here may have left git's lock.
    (REPOSITORY / ".git" / "index.lock").unlink(missing_ok=True)
    git("commit", "--all", "-m", f"{words}\n\nStep: {key}")
    return git("rev-parse", "agent")


@dalsegno.agent
def program(goal: str) -> str:
    dalsegno.checkpoint("begun", goal, holding=[BRANCH])
    for attempt in range(1, 4):
        problem = run_test()
        if not problem:
            break
        dalsegno.checkpoint("tests have failed", problem.splitlines()[-1], progress=(attempt, 3))
        change = mend(read("sums.py"), problem)
        edit(change["file"], change["text"])
    # From here on the branch moves by our own hand: it is held again where it is then.
    dalsegno.checkpoint("committing", releasing=[BRANCH])
    made = commit(goal)
    dalsegno.checkpoint("committed", made, holding=[BRANCH])
    return made


def make_repository() -> None:
    if (REPOSITORY / ".git" / "refs" / "heads" / "agent").exists():
        return
    REPOSITORY.mkdir(parents=True, exist_ok=True)
    git("init", "-q", "-b", "agent")
    (REPOSITORY / "sums.py").write_text("def add(a: int, b: int) -> int:\n    return a - b\n")
    git("add", "sums.py")
    git("commit", "-q", "-m", "Add sums")


def main() -> None:
    make_repository()
    with dalsegno.open(FOLDER / "store", agents=[program]) as app:
        if sys.argv[2:] == ["accept"]:
            app.clear_attention("mend sums")
        try:
            print("committed", app.run(program, "mend sums", "Mend add"))
        except dalsegno.NeedsAttention as e:
            sys.exit(f"{e}\naccept it with: python {sys.argv[0]} {FOLDER} accept")


if __name__ == "__main__":
    main()
