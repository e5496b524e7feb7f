"""Checks of the names, keys, entities, numbers and times that callers give."""

import json
import re
from datetime import UTC, datetime
from typing import Any, TypeGuard
from uuid import UUID

from holdfast.core.codec import encode_json
from holdfast.errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
LONGEST_KEY = 500  # with a task's name it fits into an entry of PostgreSQL's index
_BIGINT = 2**63 - 1


def name(value: object, what: str) -> str:
    """Check the name of a task or a queue, and return it."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidInput(
            f"{what}={str(value)[:150]!r}: a name is 1 to 128 letters, digits and '_ . : / -', and "
            "begins with a letter, a digit or '_'"
        )
    return str(value)


def key(value: object, what: str = "key") -> str:
    """Check a key or an idempotency key, and return it."""
    if not is_text(value) or not 0 < len(value) <= LONGEST_KEY:
        raise InvalidInput(
            f"{what}={str(value)[:80]!r}: a key is a string of 1 to {LONGEST_KEY} characters, without "
            "NUL or lone surrogates"
        )
    return value


def entity(value: Any) -> tuple[str, str]:
    """Check an entity; return its type, and its id as JSON text, so that 7 and "7" differ."""
    if isinstance(value, tuple | list) and len(value) == 2:
        kind, id = value
        if isinstance(id, UUID):
            id = str(id)
        plain = isinstance(id, int | str) and not isinstance(id, bool)
        if isinstance(kind, str) and _NAME.fullmatch(kind) and plain and is_text(str(id)):
            return kind, encode_json(id, "entity")
    raise InvalidInput(
        f"entity={value!r}: give a pair of a name and an id, e.g. ('movie', 7); the id is an integer, "
        "a string or a UUID"
    )


def entity_of(text: str, error: str) -> tuple[str, int | str]:
    """Return the entity in a text: the id of movie:7 is a number, of movie:"7" a string. `error`:
    the beginning of the message of InvalidInput."""
    kind, _, id = text.partition(":")
    if not kind or not id:
        raise InvalidInput(f"{error}: write TYPE:ID, such as movie:7")
    try:
        read = json.loads(id)
    except (ValueError, RecursionError):
        return kind, id
    return kind, read if type(read) in (int, str) else id


def integer(value: object, what: str, lowest: int = -_BIGINT, highest: int = _BIGINT) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise InvalidInput(f"{what}={value!r}: give an integer from {lowest} to {highest}")
    return value


def moment(value: object, what: str) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidInput(
            f"{what}={value!r}: give a datetime with a timezone, e.g. "
            "datetime.now(UTC) + timedelta(hours=1)"
        )
    return value.astimezone(UTC)


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is a string that both databases can store."""
    return (
        isinstance(value, str)
        and "\x00" not in value
        and not any("\ud800" <= char <= "\udfff" for char in value)
    )
