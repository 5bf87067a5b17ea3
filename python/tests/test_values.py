"""Values come back as they were, by the hints of who wants them."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import threading
import uuid
import zoneinfo
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar, Union

import numpy
import pydantic
import pytest
import typing_extensions
from conftest import Open

import dalsegno
from dalsegno._values import Unwritable, read, write, write_and_read


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


@dataclass
class Part:
    name: str
    sizes: tuple[int, ...] = ()
    inner: Optional[Part] = None


@dataclass(frozen=True)
class Whole:
    parts: list[Part]
    when: datetime.datetime
    by: dict[uuid.UUID, Part] = field(default_factory=dict)
    colour: Colour = Colour.RED


class Point(NamedTuple):
    x: int
    y: decimal.Decimal


class Options(TypedDict, total=False):
    limit: int
    since: datetime.date
    part: Part


One = TypeVar("One")
Other = TypeVar("Other")


class Wrapped(typing_extensions.TypedDict, Generic[One]):
    item: One


class Pair(typing_extensions.TypedDict, Generic[One, Other]):
    key: One
    item: Other


class Order(pydantic.BaseModel):
    id: int
    at: datetime.datetime
    tags: set[str] = set()


class Right(enum.Flag):
    READ = 1
    WRITE = 2


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    content: T
    more: list[T] = field(default_factory=list)


@dataclass
class PartBox(Box[Part]):
    size: int = 0


@dataclass
class ListBox(Box[list[Other]]):
    pass


@dataclass
class PartBoxes(ListBox[Part]):
    pass


@dataclass
class Fixed:
    part: Final[Part]  # type: ignore[misc,unused-ignore]


class Marked(typing_extensions.TypedDict):
    all: typing_extensions.Required[Part]
    some: typing_extensions.NotRequired[Part]
    read: typing_extensions.ReadOnly[Part]


@dataclass
class Derived(Part):
    extra: int = 0


@dataclass(frozen=True)
class Counted:
    name: str
    start: dataclasses.InitVar[int] = 0
    count: int = field(init=False, default=0)
    lock: Any = field(init=False, default_factory=threading.Lock, compare=False)

    def __post_init__(self, start: int) -> None:
        object.__setattr__(self, "count", start)


class Aliased(pydantic.BaseModel):
    name: str = pydantic.Field(alias="userName")
    size: int = pydantic.Field(default=0, validation_alias="in", serialization_alias="out")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True, ser_json_bytes="base64", val_json_bytes="base64")
    at: datetime.datetime
    sizes: tuple[int, ...]
    raw: bytes
    score: float = math.inf

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def count(self) -> int:
        return len(self.sizes)


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    when: Union[datetime.datetime, str]
    data: Any = None
    inner: Optional[Loose] = None
    left_out: Any = pydantic.Field(default="", exclude=True)
    # Pydantic does not look at defaults.
    price: float = 0
    tags: list[str] = ()  # type: ignore[assignment]


class Several(pydantic.RootModel[list[int]]):
    pass


class ByName(pydantic.RootModel[dict[str, int]]):
    pass


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


Reference = TypedDict("Reference", {"$ref": str})
Name = NewType("Name", str)
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NOW = datetime.datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))

PLAIN: list[Any] = [
    None,
    True,
    0,
    -(10**30),
    1.5,
    1e300,
    "",
    "ü\u2028\x00",
    [],
    [1, [2, {"a": None}]],
    {"a": 1, "": 2},
    {"$bytes": "no"},
    {1: 2, (1, 2): "x"},
    (1, (2, "x")),
    {1, 2, 3},
    frozenset({"a"}),
    b"\x00\xff",
    bytearray(b"x"),
    NOW,
    datetime.datetime(2026, 1, 1),
    NOW.date(),
    datetime.time(1, 2, 3),
    datetime.timedelta(days=-1, microseconds=5),
    decimal.Decimal("1.10"),
    uuid.UUID(int=5),
    pathlib.PurePosixPath("/a/b"),
    pathlib.Path("a\udcff"),
    1 + 2j,
    math.inf,
    # Half a character; the name of a file that is no text; and where else that may be.
    "a\ud83d",
    {"\udcff.txt": ["\udcff"], "plain": 1},
    ("ü", {"\ud800"}),
    datetime.datetime(2026, 10, 25, 2, 30, fold=1),
]

HINTED: list[tuple[Any, Any]] = [
    (Colour.BLUE, Colour),
    ([Colour.RED, None], list[Optional[Colour]]),
    (Part("a", (1, 2), Part("b")), Part),
    (Whole([Part("a")], NOW, {uuid.UUID(int=1): Part("b")}, Colour.BLUE), Whole),
    (Point(1, decimal.Decimal("2.5")), Point),
    ({"limit": 1, "since": NOW.date(), "part": Part("x")}, Options),
    (Order(id=1, at=NOW, tags={"a", "b"}), Order),
    ([Order(id=1, at=NOW)], Sequence[Order]),
    ({"a": Order(id=1, at=NOW)}, dict[str, Order]),
    ((1, Part("a")), tuple[int, Part]),
    ({Colour.RED}, set[Colour]),
    (Part("a"), Union[Part, Order, None]),
    (Order(id=1, at=NOW), Union[Part, Order, str]),
    ("text", Union[Part, Order, str]),
    (Name("x"), Name),
    (Right.READ | Right.WRITE, Right),
    (Right(0), Right),
    (Right.WRITE, Right | int),
    (3, Right | int),
    (Box(Part("a"), [Part("b")]), Box[Part]),
    ([Box(Part("a"))], list[Box[Part]]),
    (Counted("a", 7), Counted),
    ({"item": Part("a")}, Wrapped[Part]),
    ({"key": Part("a"), "item": Colour.RED}, Pair[Part, Colour]),
    (Derived("a", extra=2), Union[Part, Derived]),
    # What looks like one of another type is not taken for it.
    ("RED", Colour | str),
    ("none of them", Colour | str),
    (Colour.RED, Colour | str),
    ({"name": "a"}, Part | dict),
    ({"id": 1, "at": "2026-03-01"}, Union[Order, dict[Any, Any]]),
    ({"$ref": "x"}, Reference),
    (Aliased(userName="ann", **{"in": 3}), Aliased),
    (Strict(at=NOW, sizes=(1, 2), raw=b"\xff"), Strict),
    (Several([1, 2]), Several),
    (ByName({"$a": 1}), ByName),
    ([Several([])], list[Several]),
    ([Part("a")], typing_extensions.TypeAliasType("Parts", list[Part])),
    ([Part("a")], typing_extensions.TypeAliasType("Several", list[One], type_params=(One,))[Part]),  # type: ignore[arg-type]
    (PartBox(Part("a"), [Part("b")], 3), PartBox),
    ((Part("a"), Part("b")), Sequence[Part]),
    ({Colour.RED}, Set[Colour]),
    (frozenset({Colour.RED}), Iterable[Colour]),
    (Loose(when="now", data={"a": [1, 1.5, None, "x", True]}, tags=[], more="more"), Loose),  # type: ignore[call-arg]
    (PartBoxes([Part("a")], [[Part("b")]]), PartBoxes),
    (Fixed(Part("a")), Fixed),
    ({"all": Part("a"), "some": Part("b"), "read": Part("c")}, Marked),
    (Colour.RED, Literal[Colour.RED]),
    (Colour.BLUE, Literal[Colour.BLUE, "BLUE", 3]),
    ("BLUE", Literal[Colour.BLUE, "BLUE", 3]),
    # Hints that do not tell the truth do no harm.
    (None, str),
    ((1, 2), list[int]),
    ({"a": 1}, Part | dict[str, int]),
    (5, Order),
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_come_back_without_a_hint(value: Any) -> None:
    found = read(write(value))
    assert found == value
    assert type(found) is type(value) or isinstance(value, pathlib.PurePath)


@pytest.mark.parametrize(("value", "hint"), HINTED, ids=repr)
def test_structured_values_come_back_by_their_hint(value: Any, hint: Any) -> None:
    found = read(write(value, hint), hint)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("hour", [2, 3])
@pytest.mark.parametrize("fold", [0, 1])
def test_a_time_stays_in_its_zone(hour: int, fold: int) -> None:
    when = datetime.datetime(2026, 10, 25, hour, 30, tzinfo=BERLIN, fold=fold)
    found = read(write(when))
    assert found.tzinfo is BERLIN
    # Also over the night in which the clock is changed.
    later = datetime.timedelta(days=180)
    assert (found.isoformat(), (found + later).isoformat()) == (when.isoformat(), (when + later).isoformat())
    assert read(write(datetime.time(2, 30, tzinfo=BERLIN))).tzinfo is BERLIN


def test_records_from_before_are_read() -> None:
    assert read('{"$datetime":"2026-03-01T12:00:00+01:00"}').utcoffset() == datetime.timedelta(hours=1)
    assert read('{"id":1,"at":"2026-03-01T12:00:00Z","tags":[]}', Order).id == 1
    assert read('{"name":"a"}', Part | dict) == Part("a")


def test_not_a_number_comes_back() -> None:
    assert math.isnan(read(write(math.nan)))


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(6, dtype=numpy.float32).reshape(2, 3).T,
        numpy.array([], dtype=numpy.int64),
        numpy.array(3.5),
        numpy.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", "<f8")]),
        numpy.array([numpy.nan, 1.0]),
        numpy.asfortranarray(numpy.arange(3, dtype=">i2")),
        numpy.zeros(2, dtype=numpy.dtype([("a", "i1"), ("b", "f8")], align=True)),
        numpy.zeros(2, dtype=[("a", "<i4", (2, 2)), ("inner", [("x", "<f4"), ("y", "<M8[s]")])]),
    ],
)
def test_arrays_come_back(array: Any) -> None:
    found = read(write({"vector": array}))["vector"]
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert write(found) == write(array)
    assert str(found.tolist()) == str(array.tolist())
    assert found.flags.writeable


def test_scalars_of_numpy_come_back() -> None:
    found = read(write(numpy.float32(1.5)))
    assert type(found) is numpy.float32
    assert found == 1.5


class Odd:
    pass


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Odd(), "Odd cannot be written"),
        ([Odd()], "Odd cannot be written"),
        (Part("a"), "Part can be written, but not be read back without a type hint"),
        (Colour.RED, "Colour can be written, but"),
        (Text("x"), "Text would come back as a str"),
        (numpy.array([Odd()]), "array of Python objects"),
        (lambda: None, "function cannot be written"),
        (pathlib.PureWindowsPath("a\\b"), "PureWindowsPath cannot be written"),
        (numpy.ma.array([1, 2], mask=[False, True]), "MaskedArray would come back as a plain array"),
    ],
)
def test_what_cannot_come_back_is_refused(value: Any, words: str) -> None:
    with pytest.raises(Unwritable, match=words):
        write(value)


def test_a_secret_is_not_replaced_by_stars() -> None:
    with pytest.raises(Unwritable, match="Login has a secret"):
        write(Login(password=pydantic.SecretStr("xyzzy")), Login)
    assert (
        read(write(Login(password=pydantic.SecretStr("*" * 10)), Login), Login).password.get_secret_value() == "*" * 10
    )


@dalsegno.tool(effect="read_only")
def loosely(model: Loose, bring_back: bool) -> Union[Loose, None]:
    return model if bring_back else None


LOOSE: list[Loose] = []


@dalsegno.agent
def is_loose(bring_back: bool) -> bool:
    return loosely(LOOSE[-1], bring_back) is not None


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Loose(when=NOW, data=NOW), "a datetime.datetime in a Pydantic model would come back as a str"),
        (Loose(when="now", data=[{"x": b"x"}]), "a bytes in .* come back as a str"),
        (Loose(when="now", data=(1, 2)), "a tuple in .* come back as a list"),
        (Loose(when="now", data=Part("a")), "a test_values.Part in .* come back as a dict"),
        (Loose(when="now", inner=Loose(when="now", data=decimal.Decimal(1))), "a decimal.Decimal in .* as a str"),
        (Loose(when="now", more=uuid.UUID(int=1)), "a uuid.UUID in"),  # type: ignore[call-arg]
        (Loose(when="now", data=math.nan), "a float in .* come back as a NoneType"),
        (Loose(when="now", data={1: "a"}), "a dict by int in .* come back as a dict by str"),
    ],
    ids=repr,
)
def test_what_pydantic_would_not_bring_back_is_no_result(opened: Open, model: Loose, words: str) -> None:
    LOOSE[:] = [model]
    app = opened(is_loose, takes_loose)
    with pytest.raises(dalsegno.RunFailed, match=rf"step loosely#1: it gave a test_values.Loose, .*{words}"):
        app.run(is_loose, "r", True)
    with pytest.raises(dalsegno.NotSerialisable, match=words):
        app.run(takes_loose, "s", [model])
    # What goes into a step is not brought back.
    assert app.run(is_loose, "t", False) is False


@dalsegno.agent
def takes_loose(models: list[Loose]) -> int:
    return len(models)


class Bag(pydantic.BaseModel):
    ids: set[Any]


def test_nor_is_a_set_of_it() -> None:
    assert write_and_read(Bag(ids={"a", 1}), Bag)[1].ids == {"a", 1}
    with pytest.raises(TypeError, match=r"a set of uuid\.UUID in .* come back as a set of str"):
        write_and_read(Bag(ids={uuid.UUID(int=1)}), Bag)


@dataclasses.dataclass
class Coerced:
    count: int
    lock: Any = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.count = int(self.count)
        self.lock = "made again"


def test_what_the_hint_says_wins_over_what_is_given() -> None:
    found = write_and_read({"when": "now", "price": "10.5"}, Loose)[1]
    assert (type(found), found.price) == (Loose, 10.5)
    assert write_and_read(Loose.model_construct(when="now", price="10.5"), Loose)[1].price == 10.5
    assert write_and_read({"count": "3"}, Coerced)[1].count == 3
    locked = Coerced(3)
    locked.lock = threading.Lock()
    assert write_and_read(locked, Coerced)[1].lock == "made again"


def test_what_pydantic_leaves_out_is_not_recorded() -> None:
    given = Loose(when="now", left_out=threading.Lock())
    found = write_and_read(given, Loose)[1]
    assert (found.left_out, found.price, found.tags) == ("", 0, [])
    found.price = 3
    assert write_and_read(found, Loose)[1].price == 3


def test_sets_are_written_in_one_order() -> None:
    assert write({"a", "b", "c"}) == write({"c", "b", "a"})


@dalsegno.tool(effect="read_only")
def build(part: Part, when: datetime.datetime, vector: numpy.ndarray[Any, Any]) -> Whole:
    return Whole([part], when, colour=Colour.BLUE)


@dalsegno.tool(effect="read_only")
def bare() -> tuple[bytes, Order]:
    return b"x", Order(id=1, at=NOW)


@dalsegno.agent
def made(part: Part, options: Options, *more: int, colour: Colour) -> tuple[Whole, Colour, int]:
    assert isinstance(part, Part)
    assert isinstance(options["since"], datetime.date)
    whole = build(part, NOW, numpy.zeros(3))
    assert type(whole) is Whole
    assert type(bare()[1]) is Order
    return whole, colour, sum(more)


def test_values_go_through_a_run(opened: Open) -> None:
    app = opened(made)
    given: Options = {"since": NOW.date()}
    want = (Whole([Part("a", (1,))], NOW, colour=Colour.BLUE), Colour.RED, 5)
    assert app.run(made, "r", Part("a", (1,)), given, 2, 3, colour=Colour.RED) == want
    assert opened(made).get("r").result() == want
