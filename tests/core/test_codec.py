"""Arguments, results and errors to and from JSON."""

import dataclasses
import enum
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import msgspec
import pydantic
import pytest
from hypothesis import given, settings

from holdfast import InvalidArguments, InvalidInput, PayloadTooLarge
from holdfast.core.codec import MAX_BODY, MAX_ERROR, Arguments, Result, encode_error, encode_json


class Colour(enum.Enum):
    RED = "red"


class Struct(msgspec.Struct):
    number: int
    names: list[str] = []


class Model(pydantic.BaseModel):
    when: datetime


@dataclasses.dataclass
class Data:
    model: Model
    colour: Colour


def everything(
    text: str,
    number: int,
    ratio: float,
    when: datetime,
    day: date,
    span: timedelta,
    id: UUID,
    money: Decimal,
    path: Path,
    raw: bytes,
    colour: Colour,
    data: Data,
    struct: Struct,
    structs: dict[str, list[Struct]],
    maybe: Struct | None,
    json: Any,
    copy: tuple[int, ...] = (),
) -> None: ...


VALUES: dict[str, Any] = {
    "text": "a\x00b \U0001f3ac",
    "number": 2**80,
    "ratio": 1e-300,
    "when": datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=UTC),
    "day": date(2026, 2, 3),
    "span": timedelta(days=1, microseconds=7),
    "id": UUID(int=7),
    "money": Decimal("1.10"),
    "path": Path("a/b"),
    "raw": bytes(range(256)),
    "colour": Colour.RED,
    "data": Data(Model(when=datetime(2026, 1, 1, tzinfo=UTC)), Colour.RED),
    "struct": Struct(1, ["x"]),
    "structs": {"a": [Struct(2)]},
    "maybe": None,
    "json": {"NaN": ["Infinity", None, True, 1.5]},
    "copy": (1, 2),
}


def test_types_survive_encoding_and_decoding() -> None:
    arguments = Arguments("everything", everything)
    payload = arguments.encode((), VALUES)
    assert arguments.decode(payload) == VALUES
    assert arguments.decode(json.dumps(json.loads(payload))) == VALUES


def test_positional_arguments_are_stored_by_name_without_defaults() -> None:
    def handler(a: int, b: str = "x") -> None: ...

    assert Arguments("t", handler).encode((7,), {}) == '{"a":7}'
    assert Arguments("t", handler).decode('{"a":7}') == {"a": 7}


def test_keyword_collecting_handlers_are_supported() -> None:
    def handler(a: int, **rest: Any) -> None: ...

    arguments = Arguments("t", handler)
    payload = arguments.encode((1,), {"b": [2], "c": "3"})
    assert arguments.decode(payload) == {"a": 1, "b": [2], "c": "3"}


def test_skipped_parameters_are_not_stored() -> None:
    def handler(ctx: object, a: int) -> None: ...

    assert Arguments("t", handler, skip=1).encode((1,), {}) == '{"a":1}'


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ('{"a":"x"}', "does not fit task 't': a: Input should be a valid integer"),
        ("{}", "a: is missing"),
        ('{"a":1,"z":2}', "z: there is no such argument"),
        ("[1]", "the payload"),
    ],
)
def test_a_stored_payload_that_no_longer_fits_names_the_field(payload: str, words: str) -> None:
    def handler(a: int) -> None: ...

    with pytest.raises(InvalidArguments, match=words):
        Arguments("t", handler).decode(payload)


def test_the_size_limit_is_exact() -> None:
    def handler(a: str) -> None: ...

    arguments = Arguments("t", handler)
    room = MAX_BODY - len('{"a":""}')
    assert len(arguments.encode(("x" * room,), {})) == MAX_BODY
    with pytest.raises(PayloadTooLarge, match="pass its id or path"):
        arguments.encode(("x" * (room + 1),), {})


def test_type_hints_that_cannot_be_resolved_or_converted() -> None:
    def unresolved(a: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidInput, match="cannot be resolved"):
        Arguments("t", unresolved)

    class Strange:
        pass

    def strange(a: Strange) -> None: ...

    with pytest.raises(InvalidInput, match="cannot be turned into JSON"):
        Arguments("t", strange)


def test_a_json_schema_for_forms() -> None:
    def handler(a: int, b: str = "x") -> None: ...

    schema = Arguments("t", handler).json_schema()
    assert schema["required"] == ["a"]
    assert schema["properties"]["b"]["type"] == "string"


def test_results_are_encoded() -> None:
    def typed() -> list[Data]: ...

    result = Result("t", typed)
    value = [Data(Model(when=datetime(2026, 1, 1, tzinfo=UTC)), Colour.RED)]
    assert result.decode(result.encode(value)) == value

    def untyped(): ...

    assert Result("t", untyped).encode({"a": (1, 2)}) == '{"a":[1,2]}'
    with pytest.raises(InvalidArguments, match="cannot be written as JSON"):
        Result("t", untyped).encode(object())
    with pytest.raises(InvalidArguments, match="NaN"):
        Result("t", untyped).encode(float("nan"))


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Hostile(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class Nameless(Exception):
    __module__ = None  # type: ignore[assignment]


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def recursion() -> BaseException:
    def down() -> None:
        down()

    try:
        down()
    except RecursionError as error:
        return error
    raise AssertionError


def group() -> BaseException:
    return ExceptionGroup("many", [ValueError(str(n)) for n in range(1000)])


ERRORS: dict[str, Callable[[], BaseException]] = {
    "plain": lambda: raised(ValueError("no")),
    "without message": lambda: KeyError(),
    "NUL and surrogates": lambda: raised(ValueError("a\x00b\ud800\udfff")),
    "NaN": lambda: raised(ValueError(float("nan"))),
    "unprintable": lambda: raised(Unprintable()),
    "hostile": lambda: raised(Hostile()),
    "nameless": lambda: raised(Nameless("x")),
    "ten megabytes": lambda: raised(ValueError("x" * 10_000_000)),
    "recursion": recursion,
    "a group": group,
    "exit": lambda: raised(SystemExit(3)),
    "interrupt": lambda: raised(KeyboardInterrupt()),
}


@pytest.mark.parametrize("case", list(ERRORS), ids=list(ERRORS))
def test_the_error_encoder_accepts_every_exception(case: str) -> None:
    error, trace = encode_error(ERRORS[case]())
    for text in (error, trace):
        assert 0 < len(text) <= MAX_ERROR
        assert "\x00" not in text
        text.encode("utf-8")
    assert len(json.dumps(error)) > 2


def test_an_encoded_error_has_type_and_message() -> None:
    error, trace = encode_error(raised(ValueError("no such podcast")))
    assert error == "ValueError: no such podcast"
    assert "raise error" in trace
    assert trace.endswith("ValueError: no such podcast\n")


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
        ),
        max_leaves=20,
    )
)
def test_every_json_value_survives(value: Any) -> None:
    assert json.loads(encode_json(value, "value")) == value


@settings(max_examples=200, deadline=None)
@given(st.text(), st.lists(st.binary()))
def test_no_message_makes_the_error_encoder_fail(text: str, arguments: list[bytes]) -> None:
    error, trace = encode_error(ValueError(text, arguments))
    assert "\x00" not in error + trace
    assert (error + trace).encode("utf-8").decode() == error + trace
