"""Texts and widths."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.filters import duration, entity, moment
from holdfast.cli.output import age, clean, count, fit, iso, when
from holdfast.errors import InvalidInput

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_times():
    assert iso(NOW) == "2030-01-01T00:00:00.000000Z"
    assert iso(None) is None
    assert [age(seconds) for seconds in (0, 59, 60, 3600, 86400 * 9)] == [
        *("0s", "59s", "1m", "1h", "9d"),
    ]
    assert when(NOW + timedelta(hours=2), NOW) == "in 2h"
    assert when(NOW - timedelta(seconds=3), NOW) == "3s ago"
    assert (count(7, 10), count(10, 10)) == ("7", "10+")


def test_moments():
    assert moment("2030-01-01", "--since") == NOW
    assert moment("2030-01-01T02:00+02:00", "--since") == NOW
    assert abs(datetime.now(UTC) - moment("1h", "--since") - timedelta(hours=1)) < timedelta(
        hours=1
    )
    assert (duration("90", "--x"), duration("1.5m", "--x")) == (90.0, 90.0)
    for wrong in ("", "soon", "-1", "nan"):
        with pytest.raises(InvalidInput, match="--x"):
            duration(wrong, "--x")


@pytest.mark.parametrize(
    ("text", "id"),
    [
        *[("movie:7", 7), ('movie:"7"', "7"), ("movie:a:b", "a:b"), ("movie:007", "007")],
        *[("movie:true", "true"), ("movie:1.5", "1.5"), ("movie:null", "null"), ("movie:[", "[")],
    ],
)
def test_entities(text: str, id: object):
    assert entity(text) == ("movie", id)


def test_nothing_stored_steers_a_terminal():
    stored = "a\x1b[2J\x07\x9b31m\x00\r\nb\tc"
    assert clean(stored) == "a\\x1b[2J\\x07\\x9b31m\\x00\\x0d b c"
    assert clean("a\nb", lines=True) == "a\nb"


def test_columns_that_may_be_cut_share_what_is_left():
    assert fit([10, 10], [False, False], 80) == [10, 10]
    assert fit([36, 50, 9], [False, True, False], 80) == [36, 31, 9]
    assert fit([36, 5, 100], [False, True, True], 80) == [36, 5, 35]
    assert fit([36, 50, 50], [False, True, True], 80) == [36, 20, 20]
    assert fit([36, 50], [False, True], 20) == [36, 4]


def test_json_lines_are_lines():
    from holdfast.cli.output import to_json

    assert "\n" not in to_json({"a": ["\n", {}]}, indent=None)
    assert json.loads(to_json({"é": "\x9b"})) == {"é": "\x9b"}
