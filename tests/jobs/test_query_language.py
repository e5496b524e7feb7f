"""The search language: what terms mean, and that every other text is refused."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidInput
from holdfast.engine.records import Filter
from holdfast.jobs.filters import make_filter
from holdfast.jobs.query_language import QUALIFIERS, parse, quote

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", {}),
        ("  \t ", {}),
        ("word", {"text": ("word",)}),
        ("two words", {"text": ("two", "words")}),
        ('"two words"', {"text": ("two words",)}),
        ('"C:\\x"', {"text": ("C:\\x",)}),
        ('"a \\"b\\" \\\\ c:d"', {"text": ('a "b" \\ c:d',)}),
        ("type:enrich", {"prefix": "enrich"}),
        ("type:enrich*", {"prefix": "enrich"}),
        ("type:=enrich", {"type": "enrich"}),
        ("status:failed", {"status": ["failed"]}),
        ("status:failed,retrying status:pending", {"status": ["failed", "retrying", "pending"]}),
        ("queue:media", {"queue": "media"}),
        ("entity:movie:7", {"entity": ("movie", 7)}),
        ('entity:movie:"7"', {"entity": ("movie", "7")}),
        ("entity:movie:x:y", {"entity": ("movie", "x:y")}),
        ('entity:"movie:a b"', {"entity": ("movie", "a b")}),
        ("key:k", {"key": "k"}),
        ("key:a:b", {"key": "a:b"}),
        ('key:"a b"', {"key": "a b"}),
        ("worker:host-1-a", {"worker_id": "host-1-a"}),
        ("id:0190aa", {"id": "0190aa"}),
        ("priority:5", {"min_priority": 5, "max_priority": 5}),
        ("priority:-5", {"min_priority": -5, "max_priority": -5}),
        ("priority:>5", {"min_priority": 6}),
        ("priority:>=5", {"min_priority": 5}),
        ("priority:<5", {"max_priority": 4}),
        ("priority:<=5", {"max_priority": 5}),
        ("priority:1..5", {"min_priority": 1, "max_priority": 5}),
        ("priority:>1 priority:<5", {"min_priority": 2, "max_priority": 4}),
        ('error:"rate limit"', {"error": ("rate limit",)}),
        ("error:a error:b", {"error": ("a", "b")}),
        ("payload.user.id:7", {"payload": {"user.id": "7"}}),
        ('payload.a:"x y" payload.b:1', {"payload": {"a": "x y", "b": "1"}}),
        ("after:2026-11-01", {"since": datetime(2026, 11, 1, tzinfo=UTC)}),
        ("after:2026-11-01T12:30+02:00", {"since": datetime(2026, 11, 1, 10, 30, tzinfo=UTC)}),
        ("before:1h", {"until": NOW - timedelta(hours=1)}),
        ('before:"1h 30m"', {"until": NOW - timedelta(minutes=90)}),
        (
            "after:7d before:2d",
            {"since": NOW - timedelta(days=7), "until": NOW - timedelta(days=2)},
        ),
        (
            'type:enrich status:failed 50% error:"rate limit" _\\',
            {
                "prefix": "enrich",
                "status": ["failed"],
                "error": ("rate limit",),
                "text": ("50%", "_\\"),
            },
        ),
    ],
)
def test_queries_are_parsed_into_filters(text: str, meaning: dict):
    assert parse(text, NOW) == meaning


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("colour:red", ["colour", "type", "priority", "payload.", '"colour:red"']),
        ("http://example.org", ["http", '"http://example.org"']),
        (":x", ["no qualifier"]),
        ("Status:failed", ["Status", "status"]),
        ("status:broken", ["broken", "retrying"]),
        ("status:failed,", ["statuses are"]),
        ("priority:high", ["high", "1..5"]),
        ("priority:>1..5", [">1..5"]),
        ("after:tomorrow", ["tomorrow", "2026-11-01", "2h"]),
        ("before:-1h", ["-1h"]),
        ("entity:movie", ["TYPE:ID"]),
        ("entity::7", ["TYPE:ID"]),
        ("queue:a queue:b", ["queue", "twice"]),
        ("payload.a:1 payload.a:2", ["payload.a", "twice"]),
        ("payload.:1", ["payload."]),
        ('"open', ['"open', "closed"]),
        ('error:"a"b', ["quotes"]),
        ('key:a"b"', ["quotes go around the whole value"]),
        ('a"b"', ["quotes go around the whole value"]),
        ("x" * 2001, ["2001", "2000"]),
    ],
)
def test_invalid_queries_are_refused(text: str, names: list[str]):
    with pytest.raises(InvalidInput) as refused:
        parse(text, NOW)
    assert [name for name in names if name not in str(refused.value)] == []


@pytest.mark.parametrize(
    "text",
    [
        *("type:", 'type:""', "queue:a/%20b", "key:", "error:", 'error:""', "id:xyz", "id:01"),
        *("worker:", "priority:9223372036854775808", "payload.a..b:1", "payload.a[0]:1", "a\x00b"),
        *("payload.0.1.2.3:x", "payload.-1:x", "payload.1234567890:x", "entity:a b:7"),
        " ".join(f"w{number}" for number in range(21)),
        " ".join(f"payload.p{number}:1" for number in range(21)),
    ],
)
def test_invalid_filter_values_are_refused(text: str):
    with pytest.raises(InvalidInput):
        make_filter(**parse(text, NOW))


_QUALIFIERS = [*QUALIFIERS, "payload.a.0", "payload.", "x", ""]
_VALUES = ["7", ">5", "..", "failed", "1h", "2026-01-01", "movie:7", '"', "\\", '""', "=", "*", "-"]
_PIECES = st.sampled_from([*_QUALIFIERS, *_VALUES, ":", " ", "\t", '"a b"']) | st.text(max_size=5)


@given(st.lists(_PIECES, max_size=12).map("".join) | st.text(max_size=60))
def test_every_text_is_parsed_or_refused(text: str):
    try:
        made = make_filter(**parse(text, NOW))
    except InvalidInput:
        return
    assert isinstance(made, Filter)


@given(st.text(min_size=1, max_size=40))
def test_quoted_values_survive(text: str):
    assert parse(quote(text), NOW) == {"text": (text,)}
    assert parse(f"key:{quote(text)}", NOW) == {"key": text}
    assert parse(f"payload.a:{quote(text)} x", NOW) == {"payload": {"a": text}, "text": ("x",)}


@given(st.lists(st.text(min_size=1, max_size=10), min_size=1, max_size=8))
def test_terms_are_separated(words: list[str]):
    assert parse(" ".join(quote(word) for word in words), NOW) == {"text": tuple(words)}


def test_every_qualifier_is_understood():
    values = {
        "status": "failed",
        "entity": "movie:7",
        "priority": "5",
        "after": "1h",
        "before": "1h",
    }
    for name in QUALIFIERS:
        written = f"{name}a" if name.endswith(".") else name
        assert parse(f"{written}:{values.get(name, 'zzz')}", NOW) != {}


def test_ages_are_counted_from_now_by_default():
    assert abs(parse("before:1h")["until"] - datetime.now(UTC)) < timedelta(hours=1, minutes=1)
