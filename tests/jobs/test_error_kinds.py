"""Kinds of failures: what counts, and what differs from job to job."""

import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.core.codec import encode_error
from holdfast.jobs.error_groups import BUCKETS, fingerprint, normalise, sparkline, top_frame


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("", ""),
        ("no such host", "no such host"),
        ("HTTP 429 after 1.5 s", "HTTP <n> after <n> s"),
        ("took 12:30:01, 1,000 rows, -7", "took <n>, <n> rows, <n>"),
        ("job0042 failed", "job<n> failed"),
        ("on 2026-11-01T12:00:00Z", "on <time>"),
        ("on 2026-11-01 12:00:00.123+02:00, 2026-11-01.", "on <time>, <time>."),
        ("user 6f9619ff-8b86-d011-b42d-00c04fc964ff is gone", "user <uuid> is gone"),
        ("at 0x7F3a0c object", "at <hex> object"),
        ("commit deadbeef42 of main", "commit <hex> of main"),
        ("the facade is deadbeef", "the facade is deadbeef"),
        ("no key 'user_id' in \"map\"", "no key <text> in <text>"),
        ("can't read user's file", "can't read user's file"),
        ("got `x` and 'it''s'", "got <text> and <text><text>"),
        ("no file /var/lib/app/x-7.bin here", "no file <path> here"),
        (r"no file C:\data\x.bin", "no file <path>"),
        ("~/a/b and ../c/d", "<path> and <path>"),
        ("GET https://api.example.org/v1/7?q=1 failed", "GET <url> failed"),
        ("postgresql://u:p@h/db", "<url>"),
        ("mail to ann.b+x@mail.example.org bounced", "mail to <email> bounced"),
        ("a\n  b\tc", "a b c"),
        ("a/b ratio", "a/b ratio"),
    ],
)
def test_varying_parts_of_a_message_are_removed(message: str, kind: str):
    assert normalise(message) == kind


@given(st.text(max_size=3000))
def test_every_message_has_a_bounded_form(message: str):
    assert len(normalise(message)) <= 300
    kind = fingerprint(message, message)
    assert len(kind.id) == 16
    assert fingerprint(message, message) == kind


@given(st.integers(), st.uuids(), st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_and_ids_never_distinguish_kinds(number: int, id: object, real: float):
    one = fingerprint(f"E: row {number} of {id} took {real:.3f} s", None)
    assert one == fingerprint(f"E: row 1 of {'0' * 8}-0000-0000-0000-{'0' * 12} took 0.000 s", None)


ENDLESS = ["/" * 5000, "'" * 5000, "a.b@" * 2000, "0x" * 3000, "/.." * 2000, "f1" * 900]


@pytest.mark.parametrize("long", ENDLESS)
def test_unusual_messages_are_handled_fast(long: str):
    """Of patterns that could take for ever: they look at the beginning, and do not go back."""
    assert len(normalise(long)) <= 300


APP = '  File "/srv/shop/orders/tasks.py", line 12, in send\n    post(to)\n'
LIBRARY = '  File "/srv/.venv/lib/python3.11/site-packages/requests/api.py", line 59, in post\n'
STANDARD = '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\n'
OURS = f'  File "{Path(holdfast.__file__).parent}/worker/running/runners.py", line 9, in run\n'
DEMO = f'  File "{Path(holdfast.__file__).parent}/demo/tasks.py", line 9, in flaky\n'


@pytest.mark.parametrize(
    ("trace", "frame"),
    [
        (None, None),
        ("", None),
        ("no frames here", None),
        (OURS + APP + LIBRARY + STANDARD, "orders/tasks.py in send"),
        (OURS + LIBRARY + STANDARD, "json/decoder.py in raw_decode"),
        (OURS, "running/runners.py in run"),
        (OURS + DEMO, "demo/tasks.py in flaky"),
        (APP + '  File "<string>", line 1, in <module>\n', "orders/tasks.py in send"),
        (
            APP + '  File "<frozen importlib._bootstrap>", line 1, in _load\n',
            "orders/tasks.py in send",
        ),
        (APP.replace("send", "first") + "During handling:\n\n" + APP, "orders/tasks.py in send"),
        ("  | " + APP.replace("\n", "\n  | "), "orders/tasks.py in send"),
        (r'  File "C:\shop\orders\tasks.py", line 1, in send' + "\n", "orders/tasks.py in send"),
        ('  File "tasks.py", line 1, in Shop.send\n', "tasks.py in Shop.send"),
        (LIBRARY.replace("site-packages", "dist-packages") + APP, "orders/tasks.py in send"),
    ],
)
def test_the_raising_line_is_found(trace: str | None, frame: str | None):
    assert top_frame(trace) == frame


def _raise(message: str) -> str:
    try:
        int(message)
    except ValueError as problem:
        return encode_error(problem).trace
    raise AssertionError


def test_the_raising_line_of_a_real_traceback_is_found():
    assert top_frame(_raise("x")) == "jobs/test_error_kinds.py in _raise"
    assert top_frame("".join(traceback.format_stack())) is not None


def test_the_parts_of_an_error_kind():
    one = fingerprint("HTTPError: 429 for 'a'", APP)
    assert (one.exception, one.message, one.frame) == (
        "HTTPError",
        "<n> for <text>",
        "orders/tasks.py in send",
    )
    assert one.id == fingerprint("HTTPError: 503 for 'b'", APP.replace("12", "99")).id
    others = [
        fingerprint("URLError: 429 for 'a'", APP),
        fingerprint("HTTPError: 429 of 'a'", APP),
        fingerprint("HTTPError: 429 for 'a'", APP.replace("send", "fetch")),
        fingerprint("HTTPError: 429 for 'a'", None),
        fingerprint("HTTPError", APP),
        fingerprint("the worker died", None),
        fingerprint(None, None),
    ]
    assert len({one.id, *(other.id for other in others)}) == 8
    assert fingerprint("the worker died", None)[:2] == ("", "the worker died")
    assert fingerprint("KeyError", None)[:2] == ("KeyError", "")


def test_counts_are_split_into_twelfths():
    since = datetime(2026, 1, 1, tzinfo=UTC)
    now = since + timedelta(hours=12)
    moments = [
        since,
        since + timedelta(minutes=59),
        now - timedelta(seconds=1),
        now,
        now + (now - since),
    ]
    assert sparkline(moments, since, now) == [2, *[0] * 10, 3]
    assert sparkline([since], since, since) == [1, *[0] * (BUCKETS - 1)]
    assert sparkline([], since, now) == [0] * BUCKETS
