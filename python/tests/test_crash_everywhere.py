"""The pytest plugin kills agents everywhere; and it finds what is wrong with some."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import dalsegno
from dalsegno import aio
from dalsegno.testing import Ask, Broken, CrashEverywhere, Ledger, Reply


class Bank:
    """A world outside."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()
        self.mails: list[str] = []

    def reset(self) -> None:
        self.paid.clear()
        self.mails.clear()

    def seen(self) -> tuple[dict[str, int], list[str]]:
        return dict.fromkeys(self.paid, 1), list(self.mails)


BANK = Bank()


@dalsegno.model
def ask(prompt: str) -> str:
    return f"answer to {prompt}"


@dalsegno.tool(effect="idempotent")
def pay(amount: int, *, key: str = "") -> str:
    BANK.paid[key] += 1
    return f"paid {amount}"


@dalsegno.tool(effect="once")
def mail(text: str) -> int:
    BANK.mails.append(text)
    return len(BANK.mails)


@dalsegno.agent
def order(amount: int) -> str:
    said = ask("how much")
    receipt = pay(amount)
    if not dalsegno.approval("publish", receipt):
        return "no"
    dalsegno.sleep(3600)
    return f"{said}, {receipt}, {mail('done')}"


@dalsegno.agent
async def orders(count: int) -> list[str]:
    async def one(amount: int) -> str:
        said = await aio.to_thread(ask, f"how much of {amount}")
        await aio.sleep(60)
        return said + await aio.to_thread(pay, amount)

    return list(await asyncio.gather(*(one(n) for n in range(count))))


def test_nothing_happens_twice(crash_everywhere: CrashEverywhere) -> None:
    report = crash_everywhere(order, 42, world=BANK)
    assert report.moments > 20
    assert report.crashes == report.moments
    assert str(report).endswith("nothing twice, nothing lost")


def test_the_one_that_takes_over_dies_too(crash_everywhere: CrashEverywhere) -> None:
    assert crash_everywhere(order, 42, world=BANK, again=2).crashes > 60


def test_an_async_agent(crash_everywhere: CrashEverywhere) -> None:
    # How things beside each other are recorded may differ, so the world is asked, and not how often they were tried.
    assert crash_everywhere(orders, 3, world=BANK).crashes > 10


def test_with_real_processes(crash_everywhere: CrashEverywhere) -> None:
    assert crash_everywhere(order, 42, processes=5).crashes >= 5


@dalsegno.tool(effect="idempotent")
def pay_without_its_key(amount: int) -> str:
    BANK.mails.append(f"paid {amount}")
    return "paid"


@dalsegno.agent
def careless() -> str:
    return pay_without_its_key(1)


def test_what_happens_twice_is_found_and_where(crash_everywhere: CrashEverywhere) -> None:
    with pytest.raises(Broken) as broken:
        crash_everywhere(careless, world=BANK)
    assert "the world has seen" in broken.value.what
    assert "✗" in str(broken.value)
    assert "after idempotent pay_without_its_key" in str(broken.value)


@dalsegno.tool(effect="read_only")
def draw() -> int:
    BANK.mails.append("drawn")
    return len(BANK.mails)


@dalsegno.agent
def unstable() -> int:
    draw()
    return draw()


def test_a_result_that_differs_is_found(crash_everywhere: CrashEverywhere) -> None:
    class Nothing:
        def reset(self) -> None:
            BANK.reset()

    with pytest.raises(Broken, match="undisturbed it is 2"):
        crash_everywhere(unstable, world=Nothing())
    assert crash_everywhere(unstable, world=Nothing(), any_result=True).crashes > 0


@dalsegno.tool(effect="read_only")
def lost() -> str:
    raise LookupError("nothing there")


@dalsegno.agent
def loses(caught: bool) -> str:
    try:
        return lost()
    except LookupError:
        if not caught:
            raise
        return "nothing"


def test_an_agent_that_fails_undisturbed_is_no_success(crash_everywhere: CrashEverywhere) -> None:
    with pytest.raises(Broken, match=r"it fails also when nothing is disturbed: .*LookupError: nothing there"):
        crash_everywhere(loses, False)
    assert crash_everywhere(loses, False, fails=True).crashes > 0
    with pytest.raises(Broken, match=r"it is meant to fail, and gave .nothing"):
        crash_everywhere(loses, True, fails=True)


@dalsegno.agent
def asks_back() -> str:
    answer = dalsegno.approval("really?")
    return f"{answer.by}: {answer.note}" if not answer else dalsegno.signal("word", str)


def test_another_person(crash_everywhere: CrashEverywhere) -> None:
    asked = []

    def person(ask: Ask, _: Ledger) -> Reply:
        asked.append(ask.kind)
        return Reply("approve") if ask.kind == "approval" else Reply("signal", "hello")

    crash_everywhere(asks_back, person=person)
    assert set(asked) == {"approval", "signal"}


def test_a_person_who_says_no(crash_everywhere: CrashEverywhere) -> None:
    def person(ask: Ask, _: Ledger) -> Reply:
        return Reply("reject", "no")

    report = crash_everywhere(asks_back, person=person)
    assert report.crashes > 0
