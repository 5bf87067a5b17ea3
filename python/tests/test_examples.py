"""The examples do what their heads say: killed again and again, nothing happens twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def started(example: str, folder: Path, *more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "EXAMPLE_PACE": "0.1"}
    command = [sys.executable, str(EXAMPLES / f"{example}.py"), str(folder), *more]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def killed(example: str, folder: Path, kills: int, longest: float) -> None:
    """Kills it so many times, each time a little later at most."""
    moments = random.Random(7)
    for _ in range(kills):
        process = started(example, folder)
        time.sleep(0.25 + moments.random() * longest)
        process.kill()
        process.wait()


def calls(folder: Path) -> Counter[str]:
    return Counter((folder / "calls.txt").read_text().splitlines())


def test_research(tmp_path: Path) -> None:
    killed("research", tmp_path, 5, 0.5)
    status, out, err = ended(started("research", tmp_path))
    assert status == 0, err
    assert (tmp_path / "report.txt").read_text() in out
    assert "piano" not in out
    asked = calls(tmp_path)
    assert len(asked) == 4
    assert max(asked.values()) <= 6
    # It is all there: nothing is asked any more.
    assert ended(started("research", tmp_path))[0] == 0
    assert calls(tmp_path) == asked


def test_shared_memory(tmp_path: Path) -> None:
    killed("shared_memory", tmp_path, 6, 0.6)
    status, out, err = ended(started("shared_memory", tmp_path))
    assert status == 0, err
    # The answer cites the fact that it stands on, by id and source.
    assert "Its song is heard over a thousand kilometres. [3]" in out
    assert "[3] whales.txt#song" in out
    assert "(as of version 3 of 'whales')" in out
    # Each of the two has recorded everything once.
    known = out[out.index("What they know:") :].splitlines()[1:]
    assert len(known) == 4
    assert sum("researcher: whales.txt#" in line for line in known) == 3
    assert "(decision, answerer: whales.txt#song" in known[3]
    asked = calls(tmp_path)
    assert len(asked) == 5
    # It is all there: nothing is asked any more, and the answer is the same.
    status, again, err = ended(started("shared_memory", tmp_path))
    assert status == 0, err
    assert again == out[out.index("Its song") :]
    assert calls(tmp_path) == asked


def log(folder: Path) -> list[str]:
    command = ["git", "-C", str(folder / "repository"), "log", "--format=%s", "agent"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_coding(tmp_path: Path) -> None:
    killed("coding", tmp_path, 5, 0.6)
    status, out, err = ended(started("coding", tmp_path))
    assert status == 0, err
    assert out.startswith("committed ")
    assert log(tmp_path) == ["Mend add", "Add sums"]
    assert "return a + b" in (tmp_path / "repository" / "sums.py").read_text()


def test_coding_sees_that_somebody_else_has_moved_its_branch(tmp_path: Path) -> None:
    process = started("coding", tmp_path)
    end = time.monotonic() + 30
    while not (tmp_path / "calls.txt").exists():
        assert time.monotonic() < end, process.communicate()
        time.sleep(0.002)
    process.kill()
    process.wait()
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    meddle = ["git", "-C", str(tmp_path / "repository"), *who, "commit", "--allow-empty", "-q", "-m", "mine"]
    subprocess.run(meddle, check=True)
    status, _, err = ended(started("coding", tmp_path))
    assert status == 1
    assert "agent" in err
    assert "accept it with" in err
    assert log(tmp_path) == ["mine", "Add sums"]
    status, _, err = ended(started("coding", tmp_path, "accept"))
    assert status == 0, err
    assert log(tmp_path) == ["Mend add", "mine", "Add sums"]


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_support(tmp_path: Path) -> None:
    killed("support", tmp_path, 2, 0.3)
    # It waits for a person, who is another process.
    process = started("support", tmp_path)
    end = time.monotonic() + 30
    while ended(started("support", tmp_path, "approve"))[0] != 0:
        assert time.monotonic() < end
    process.kill()
    process.wait()
    for _ in range(6):
        # In the middle of the payment, or of the mail.
        process = started("support", tmp_path)
        bank, mails = len(lines(tmp_path / "bank.txt")), len(lines(tmp_path / "mails.txt"))
        while process.poll() is None:
            now = len(lines(tmp_path / "bank.txt")), len(lines(tmp_path / "mails.txt"))
            if now != (bank, mails):
                process.kill()
            time.sleep(0.001)
        status, out, err = ended(process)
        if status == 0:
            break
        if status == 1:
            assert "send_mail" in err
            assert ended(started("support", tmp_path, "sent"))[0] == 0
    status, out, err = ended(started("support", tmp_path))
    assert status == 0, err
    assert "4200 paid back for A-17" in out
    assert len(lines(tmp_path / "bank.txt")) == 1
    assert len(lines(tmp_path / "mails.txt")) == 1
