"""The same agents on a PostgreSQL database, by its address; two processes share it."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_memory import cook
from test_process import ended, started
from test_waits import LOG, Paid, order, until

import dalsegno

BIN = next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)), None)


def as_server(*command: str) -> None:
    """Runs a program of PostgreSQL, which does not like to be root."""
    user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    subprocess.run([f"{BIN}/{command[0]}", *command[1:]], check=True, stdout=subprocess.DEVNULL, cwd="/", **user)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    if BIN is None:
        pytest.skip("there is no PostgreSQL here")
    folder = Path(tempfile.mkdtemp(prefix="dalsegno-pg"))
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    data = str(folder / "data")
    as_server("initdb", "-N", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", data)
    options = f"-c listen_addresses='' -c unix_socket_directories={folder}"
    as_server("pg_ctl", "start", "-w", "-s", "-D", data, "-l", str(folder / "log"), "-o", options)
    yield f"postgres://postgres@localhost/postgres?host={folder}"
    as_server("pg_ctl", "stop", "-m", "immediate", "-s", "-D", data)
    shutil.rmtree(folder)


def test_a_run_on_a_database(database: str) -> None:
    LOG.clear()
    with dalsegno.open(database, agents=[order]) as app:
        app.start(order, "r", "tea")
        until(app, "r", "approval")
    with dalsegno.open(database, agents=[order]) as app:
        app.approve("r", "accept", by="ann")
        app.signal("r", "paid", Paid(7))
        assert app.get("r").result() == "shipped tea for 7"
        assert LOG.count("ship tea") == 1


def test_another_process_takes_over(database: str, tmp_path: Path) -> None:
    code = "print(dalsegno.open(sys.argv[2], agents=AGENTS, lease=1.0).run(worker, 'shared', 6, 0.2))"
    first = started(tmp_path / "x", code, database)
    log = tmp_path / "x.log"
    while not (log.exists() and "begin 2" in log.read_text()):
        assert first.poll() is None, first.communicate()
    first.kill()
    first.communicate()
    status, out, err = ended(started(tmp_path / "x", code, database), 60)
    assert (status, out) == (0, "15\n"), err
    lines = log.read_text().splitlines()
    assert lines.count("begin 0") == lines.count("begin 1") == 1


def test_a_memory_on_a_database(database: str) -> None:
    with dalsegno.open(database, agents=[cook]) as app, dalsegno.open(database) as other:
        said = app.run(cook, "cook", 12)
        assert said[:2] == [1, [(1, 1, said[1][0][2])]]
        assert app.replay("cook").same
        # Who has it open, too, sees what is written at once, with the same bits.
        there, here = app.memory("shared"), other.memory("shared", by="ann")
        oven = here.add("The oven is hot.")
        found = there.search("oven")
        assert (found.digest, found.hits) == (here.search("oven").digest, here.search("oven").hits)
        there.forget(oven, "nobody needs it")
        with pytest.raises(dalsegno.DocumentEnded):
            here.get(oven)
    with dalsegno.open(database, agents=[cook]) as app:
        assert app.run(cook, "cook", 12) == said
