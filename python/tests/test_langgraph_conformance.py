"""The official suite for savers of LangGraph: ours in a folder and in a database, and SqliteSaver beside it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.report import CapabilityReport
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from test_postgres import database  # noqa: F401

from dalsegno.langgraph import DalsegnoSaver

DATABASE = ""


@checkpointer_test(name="DalsegnoSaver")
async def in_a_folder() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
    with tempfile.TemporaryDirectory() as folder:
        async with DalsegnoSaver(f"{folder}/store") as saver:
            yield saver


@checkpointer_test(name="DalsegnoSaver, PostgreSQL")
async def in_a_database() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
    async with DalsegnoSaver(DATABASE) as saver:
        yield saver


@checkpointer_test(name="AsyncSqliteSaver")
async def in_sqlite() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/checkpoints.db") as saver:
            yield saver


def table(*reports: CapabilityReport) -> str:
    """What each came to, beside each other."""
    rows = [("capability", *(report.checkpointer_name for report in reports))]
    for capability in Capability:
        row = [capability.value]
        for report in reports:
            result = report.results[capability.value]
            all_tests = result.tests_passed + result.tests_failed
            row.append(f"{result.tests_passed} of {all_tests}" if result.detected else "not there")
        rows.append(tuple(row))
    passed = (str(sum(result.tests_passed for result in report.results.values())) for report in reports)
    rows.append(("all", *passed))
    return "\n".join("".join(f"{cell:28}" for cell in row).rstrip() for row in rows)


def test_all_capabilities() -> None:
    ours = asyncio.run(validate(in_a_folder))
    theirs = asyncio.run(validate(in_sqlite))
    print(f"\n{table(ours, theirs)}")
    for name, result in ours.results.items():
        assert result.detected, name
        assert result.failures == [], name
    assert sum(result.tests_passed for result in ours.results.values()) >= 81


def test_all_capabilities_in_a_database(database: str) -> None:  # noqa: F811
    global DATABASE
    DATABASE = database
    ours = asyncio.run(validate(in_a_database))
    print(f"\n{table(ours)}")
    for name, result in ours.results.items():
        assert result.detected, name
        assert result.failures == [], name
