"""Texts and widths."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from operator import itemgetter

import pytest
from rich.console import Console

from holdfast.cli import output
from holdfast.cli.filters import parse_duration, parse_entity, parse_time_or_age
from holdfast.cli.output import Column, age, clean, count, print_table, when
from holdfast.errors import InvalidInput
from holdfast.jobs.job_json import iso

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
    assert parse_time_or_age("2030-01-01", "--since") == NOW
    assert parse_time_or_age("2030-01-01T02:00+02:00", "--since") == NOW
    assert abs(
        datetime.now(UTC) - parse_time_or_age("1h", "--since") - timedelta(hours=1)
    ) < timedelta(hours=1)
    assert (parse_duration("90", "--x"), parse_duration("1.5m", "--x")) == (90.0, 90.0)
    for wrong in ("", "soon", "-1", "nan"):
        with pytest.raises(InvalidInput, match="--x"):
            parse_duration(wrong, "--x")


@pytest.mark.parametrize(
    ("text", "id"),
    [
        *[("movie:7", 7), ('movie:"7"', "7"), ("movie:a:b", "a:b"), ("movie:007", "007")],
        *[("movie:true", "true"), ("movie:1.5", "1.5"), ("movie:null", "null"), ("movie:[", "[")],
    ],
)
def test_entities(text: str, id: object):
    assert parse_entity(text) == ("movie", id)


def test_nothing_stored_steers_a_terminal():
    stored = "a\x1b[2J\x07\x9b31m\x00\r\nb\tc"
    assert clean(stored) == "a\\x1b[2J\\x07\\x9b31m\\x00\\x0d b c"
    assert clean("a\nb", lines=True) == "a\nb"


@pytest.mark.parametrize(
    ("needs", "may_be_cut", "widths"),
    [
        ([10, 10], [False, False], [10, 10]),
        ([36, 50, 9], [False, True, False], [36, 31, 9]),
        ([36, 5, 100], [False, True, True], [36, 5, 35]),
        ([36, 50, 50], [False, True, True], [36, 19, 21]),
    ],
)
def test_columns_that_may_be_cut_share_what_is_left(
    needs: list[int], may_be_cut: list[bool], widths: list[int], monkeypatch: pytest.MonkeyPatch
):
    terminal = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "console", lambda: terminal)
    columns: list[Column[list[str]]] = [
        Column("H", itemgetter(index), may_be_cut=cut) for index, cut in enumerate(may_be_cut)
    ]
    with terminal.capture() as captured:
        print_table(columns, [["x" * need for need in needs]])
    _, _, row = captured.get().splitlines()
    assert [len(cell) for cell in row.split()] == widths


def test_json_lines_are_lines():
    from holdfast.cli.output import to_json

    assert "\n" not in to_json({"a": ["\n", {}]}, indent=None)
    assert json.loads(to_json({"é": "\x9b"})) == {"é": "\x9b"}
