"""Whatever can be called can be a tool: methods, partial functions, objects; what cannot is told where it is made."""

from __future__ import annotations

import copy
import datetime
import functools
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from conftest import Open

import dalsegno
from dalsegno import aio

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers

DONE: list[Any] = []


@pytest.fixture(autouse=True)
def _clear() -> None:
    DONE.clear()


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @dalsegno.tool(effect="once", ignore="self")
    def sell(self, what: str, *, key: str = "") -> str:
        DONE.append(key)
        return f"{what} of {self.name}"

    @dalsegno.tool(effect="read_only")
    def count(self) -> int:
        return 3

    @dalsegno.tool(effect="read_only", ignore="self")
    async def look(self, what: str) -> str:
        return f"{what} in {self.name}"

    @classmethod
    @dalsegno.tool(effect="read_only", ignore="cls")
    def called(cls, n: int) -> str:
        return cls.__name__ * n

    @staticmethod
    @dalsegno.tool(effect="read_only")
    def double(n: int) -> int:
        return 2 * n

    @dalsegno.plan_step
    def day(self, what: str) -> str:
        return self.sell(what)


class Corner(Shop):
    pass


@dalsegno.agent
def seller(name: str) -> list[Any]:
    shop = Corner(name)
    return [shop.sell("bread"), shop.day("milk"), shop.called(2), shop.double(4)]  # type: ignore[call-arg]


def test_a_method_is_a_tool(opened: Open) -> None:
    want = ["bread of Ann", "milk of Ann", "CornerCorner", 8]
    assert opened(seller).run(seller, "r", "Ann") == want
    assert opened(seller).get("r").result() == want
    assert len(DONE) == len(set(DONE)) == 2
    assert opened(seller).replay("r").same


def test_elsewhere_it_is_the_method_that_it_was() -> None:
    assert Shop("Bob").sell("bread") == "bread of Bob"
    assert Shop("Bob").count() == 3
    assert Shop.count(Shop("Bob")) == 3


@dalsegno.agent
def counter() -> int:
    return Shop("Bob").count()


def test_what_a_method_belongs_to_is_an_argument(opened: Open) -> None:
    with pytest.raises(dalsegno.RunFailed, match=r"argument 'self', a .*Shop, cannot be recorded.*ignore='self'"):
        opened(counter).run(counter, "r")


@dalsegno.agent
async def looker() -> list[str]:
    shop = Shop("Bob")
    return [await shop.look("bread"), await aio.to_thread(shop.sell, "milk")]


def test_methods_in_an_async_agent(opened: Open) -> None:
    assert opened(looker).run(looker, "r") == ["bread in Bob", "milk of Bob"]


def add(a: int, b: int = 2) -> int:
    return a + b


class Adder:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, n: int) -> int:
        return self.by + n


class AsyncAdder(Adder):
    async def __call__(self, n: int) -> int:  # type: ignore[override]
        return self.by + n


PARTLY = dalsegno.tool(effect="read_only")(functools.partial(add, 1))
OBJECT = dalsegno.tool(effect="read_only")(Adder(5))
ASYNC_OBJECT = dalsegno.tool(effect="read_only")(AsyncAdder(5))
BOUND = dalsegno.tool(effect="read_only")(Adder(7).__call__)


@dalsegno.agent
def adds() -> list[int]:
    return [PARTLY(5), PARTLY(b=6), OBJECT(1), BOUND(1)]


@dalsegno.agent
async def adds_async() -> int:
    return await ASYNC_OBJECT(1)


def test_partial_functions_and_objects(opened: Open) -> None:
    app = opened(adds, adds_async)
    assert app.run(adds, "r") == [6, 7, 6, 8]
    assert app.run(adds_async, "async") == 6
    assert (PARTLY.name, OBJECT.name) == ("add", "Adder")


class Search:
    """With attributes that a tool has, too."""

    def __init__(self) -> None:
        self.name, self.effect, self.timeout, self.code = "of mine", "mine", 5, "mine"
        self.mine = "mine"

    def __call__(self, what: str) -> str:
        return f"{what} {self.name}"


SEARCH = dalsegno.tool(effect="read_only")(Search())
SEARCHER = dalsegno.agent(name="searcher")(Search())


@dalsegno.agent
def searches() -> str:
    return SEARCH("x")


def test_an_object_keeps_its_attributes_and_so_does_its_tool(opened: Open) -> None:
    assert (SEARCH.name, SEARCH.effect, SEARCH.timeout) == ("Search", "read_only", None)
    assert SEARCH.mine == "mine"  # type: ignore[attr-defined]
    app = opened(searches, SEARCHER)
    assert app.run(searches, "r") == "x of mine"
    assert app.run(SEARCHER, "s", "y") == "y of mine"


@pytest.mark.parametrize(
    "again", [dalsegno.tool(effect="read_only"), dalsegno.model, dalsegno.agent(), dalsegno.plan_step]
)
@pytest.mark.parametrize(
    ("made", "words"), [(SEARCH, "a tool"), (SEARCHER, "an agent"), (Shop("x").day, "a plan step")]
)
def test_what_is_decorated_twice_is_refused(again: Any, made: Any, words: str) -> None:
    # What is said the second time would count, or not, and a payment be made twice.
    with pytest.raises(TypeError, match=f"is {words} already: decorate the function itself, once"):
        again(made)


def test_an_agent_is_no_method() -> None:
    # Before Python 3.12 what is raised there is the cause of another exception.
    with pytest.raises((TypeError, RuntimeError)) as caught:

        class Office:
            @dalsegno.agent
            def work(self, n: int) -> int:
                return n

    error = caught.value if isinstance(caught.value, TypeError) else caught.value.__cause__
    assert "agent 'work' is a method of Office" in str(error)

    class Desk:
        agent = searches

        @staticmethod
        @dalsegno.agent
        def work(n: int) -> int:
            return n

    assert Desk.work(3) == Desk().work(3) == 3


def test_times_are_seconds_or_timedeltas() -> None:
    second = datetime.timedelta(seconds=1)
    approval = dalsegno.Approval(expires=second, wait=2)
    retry = dalsegno.Retry(3, first=second / 10, longest=second)
    made = dalsegno.tool(effect="once", timeout=second / 2, retries=retry, approval=approval)(add)
    assert made.timeout == 0.5
    with pytest.raises(ValueError, match="leaves no time"):
        dalsegno.tool(timeout=-second)(add)


@dalsegno.tool(effect="read_only", ignore="client")
def ask(client: OnlyForCheckers, prompt: str) -> str:
    return prompt.upper()


@dalsegno.agent
def asker() -> str:
    return ask(client=None, prompt="hi")  # type: ignore[arg-type]


def test_a_hint_of_what_is_not_recorded_need_not_be_there(opened: Open) -> None:
    assert opened(asker).run(asker, "r") == "HI"


def test_tools_and_agents_are_pickled_and_copied_as_functions_are() -> None:
    for made in (ask, asker):
        assert pickle.loads(pickle.dumps(made)) is made
        assert copy.deepcopy({"tool": made})["tool"] is made
    assert copy.copy(PARTLY) is PARTLY


@dataclass
class Cup:
    size: int


class timed:
    """As decorators are written that keep something."""

    def __init__(self, code: Any) -> None:
        functools.update_wrapper(self, code)
        self.code = code

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.code(*args, **kwargs)


@dalsegno.tool(effect="read_only")
@timed
def wash(cup: Cup) -> Cup:
    return cup


@dalsegno.tool(effect="read_only")
def names(*all_of_them: str, **named: str) -> list[str]:
    return [*all_of_them, *named.values()]


@dalsegno.agent
def washer() -> list[str]:
    assert wash(Cup(2)) == Cup(2)
    return names("\udcff.txt", other="\udcfe.txt")


def test_hints_and_names_that_are_not_where_they_are_looked_for_first(opened: Open) -> None:
    app = opened(washer)
    assert app.run(washer, "r") == ["\udcff.txt", "\udcfe.txt"]
    assert app.replay("r").same


def _one() -> int:
    return 1


def _several() -> Any:
    yield 1


async def _several_async() -> Any:
    yield 1


@pytest.mark.parametrize("make", [dalsegno.tool, dalsegno.model, dalsegno.agent, dalsegno.plan_step])
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (_several, "_several is a generator, and what is recorded is one result"),
        (_several_async, "_several_async is a generator"),
        (3, "a int 3 is no function"),
        (classmethod(lambda _: 1), "a classmethod is no function"),
        (staticmethod(_one), "write @staticmethod above, not below"),
    ],
    ids=["generator", "async generator", "number", "classmethod", "staticmethod"],
)
def test_what_is_none_of_them_is_told_where_it_is_made(make: Any, code: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make(code)
