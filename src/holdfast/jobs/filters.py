"""Checks filters of jobs. Texts of callers are searched for literally: no character has a meaning in
SQL."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.core import validation
from holdfast.core.codec import encode_json
from holdfast.engine.records import Filter, Wanted
from holdfast.errors import InvalidInput
from holdfast.jobs.job import Status
from holdfast.jobs.read import LAST_ID

_LONGEST_TEXT = 500
_MOST_TEXTS = 20
_MOST_STEPS = 10
_MOST_PLACES = 3
_STEP = re.compile(r"""[^\x00-\x20".\\\[\]+-][^\x00-\x1f".\\\[\]]{0,99}""")
_BEGINNING = re.compile(r"[0-9a-f]{4,32}")
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def make_filter(
    *,
    status: str | Iterable[str] | None = None,
    type: str | None = None,
    prefix: str | None = None,
    queue: str | None = None,
    key: str | None = None,
    worker_id: str | None = None,
    entity: tuple[str, Any] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    id: str | UUID | None = None,
    min_priority: int | None = None,
    max_priority: int | None = None,
    text: str | Iterable[str] = (),
    error: str | Iterable[str] = (),
    payload: Mapping[str, Any] | Iterable[tuple[str | Sequence[str], Any]] = (),
) -> Filter:
    """Return a filter; jobs must match all that is given. `id`: an id or its beginning. `text`: words
    in the error, the message, the type or the key; `error`: words in the error; all of them must occur,
    and capitals (A to Z) do not matter. `payload`: values by path, `{"user.id": 7}`; the text "7" also
    finds the number. A path may also be a sequence of keys: a list of pairs such as `(("user", "id"),
    7)`."""
    return Filter(
        status=_statuses(status),
        type=None if type is None else validation.name(type, "type"),
        prefix=None if prefix is None else validation.name(prefix, "prefix"),
        queue=None if queue is None else validation.name(queue, "queue"),
        key=None if key is None else validation.key(key),
        worker_id=None if worker_id is None else _text(worker_id, "worker_id"),
        entity=None if entity is None else validation.entity(entity),
        since=None if since is None else validation.moment(since, "since"),
        until=None if until is None else validation.moment(until, "until"),
        id=None if id is None else _ids(id),
        lowest=None if min_priority is None else validation.integer(min_priority, "min_priority"),
        highest=None if max_priority is None else validation.integer(max_priority, "max_priority"),
        text=_texts(text, "text"),
        error=_texts(error, "error"),
        payload=tuple(_wanted(path, value) for path, value in _pairs(payload)),
    )


def _statuses(status: str | Iterable[str] | None) -> frozenset[Status]:
    wanted = [] if status is None else [status] if isinstance(status, str) else list(status)
    try:
        return frozenset(Status(one) for one in wanted)
    except ValueError:
        raise InvalidInput(f"status={status!r}: the statuses are {', '.join(Status)}") from None


def _ids(id: str | UUID) -> tuple[str, str]:
    """Return the range of ids with this beginning: from the first on, and before the second."""
    digits = str(id).lower().replace("-", "")
    if not _BEGINNING.fullmatch(digits):
        raise InvalidInput(
            f"id={str(id)[:80]!r}: give an id, or at least the first 4 of its digits (0 to 9, a to f)"
        )
    first = int(digits.ljust(32, "0"), 16)
    beyond = first + (1 << 4 * (32 - len(digits)))
    return str(UUID(int=first)), LAST_ID if beyond >> 128 else str(UUID(int=beyond))


def _texts(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    words = [given] if isinstance(given, str) else list(given)
    if len(words) > _MOST_TEXTS:
        raise InvalidInput(f"{what}: {len(words)} texts were given, at most {_MOST_TEXTS}")
    return tuple(_text(word, what).translate(_LOWER) for word in words)


def _text(given: object, what: str) -> str:
    if not validation.is_text(given) or not 0 < len(given) <= _LONGEST_TEXT:
        raise InvalidInput(
            f"{what}={str(given)[:80]!r}: give a text of 1 to {_LONGEST_TEXT} characters, without NUL "
            "or lone surrogates"
        )
    return given


def _pairs(payload: Any) -> list[tuple[Any, Any]]:
    given = payload.items() if isinstance(payload, Mapping) else payload
    try:
        pairs = [(path, value) for path, value in given]
    except (TypeError, ValueError):
        pairs = []
    if len(pairs) > _MOST_TEXTS or (payload and not pairs):
        raise InvalidInput(
            f"payload={str(payload)[:80]!r}: give paths and what is there, such as {{'user.id': 7}}; "
            f"at most {_MOST_TEXTS}"
        )
    return pairs


def _wanted(path: Any, value: Any) -> Wanted:
    steps: tuple[Any, ...] = tuple(path) if isinstance(path, list | tuple) else ()
    if isinstance(path, str):
        steps = tuple(path.split("."))
    places = sum(str(step).isdecimal() for step in steps)
    if (
        not all(validation.is_text(s) and _STEP.fullmatch(s) for s in steps)
        or not 0 < len(steps) <= _MOST_STEPS
        or places > _MOST_PLACES
        or any(step.isdecimal() and not (step.isascii() and len(step) < 10) for step in steps)
    ):
        raise InvalidInput(
            f"payload path {str(path)[:80]!r}: give keys with dots between them, such as 'user.id' or "
            f"'lines.0.sku'; at most {_MOST_STEPS}, {_MOST_PLACES} of them numbers, without quotes, "
            "brackets or backslashes"
        )
    if isinstance(value, str):
        text = _text(value, f"payload {path}") if value else ""
        return Wanted(steps, (encode_json(text, "payload"), *_scalar(text)))
    if value is None or isinstance(value, bool | int | float):
        return Wanted(steps, (encode_json(value, f"payload {path}"),))
    raise InvalidInput(
        f"payload {path}={str(value)[:80]!r}: give a string, a number, a boolean or None"
    )


def _scalar(text: str) -> tuple[str, ...]:
    """Return the text as JSON if it is a number, true, false or null; else nothing."""
    try:
        found = json.loads(text, parse_constant=float, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return ()
    plain = found is None or isinstance(found, bool) or found == text.strip()
    return (text.strip(),) if plain else ()
