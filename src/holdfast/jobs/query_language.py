"""The search language of lists: `status:failed error:"rate limit" payload.user.id:7 before:1h words`.

Terms are separated by spaces, and a job must match all of them. A term is a qualifier, a colon and a
value, or a word, which is searched for in errors, messages, types and keys. A value or word with spaces
or colons needs quotes; inside them a backslash goes before a quote or a backslash. Pure: text in,
arguments of `make_filter` out.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.core import validation
from holdfast.core.duration import seconds
from holdfast.errors import InvalidInput
from holdfast.jobs.job import Status

_LONGEST = 2000
_TERM = re.compile(
    r"""(?:([^\s":]+):)?("(?:[^"\\]|\\.)*"|[^\s"](?:[^\s"]|"[^"\s]*")*)(?=\s|$)""", re.DOTALL
)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_PLAIN = re.compile(r"""[^\s":\\]+""")
_BOUND = re.compile(r"(>=|<=|>|<|=)?(-?\d{1,19})(?:\.\.(-?\d{1,19}))?")


QUALIFIERS = (
    *("status", "type", "queue", "entity", "key", "worker", "id", "priority", "error", "payload."),
    *("after", "before"),
)


def quote(text: str) -> str:
    """Return any text as one term or value."""
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parse(text: str, now: datetime | None = None) -> dict[str, Any]:
    """Return the arguments of `make_filter` for a query; ages are counted from `now`."""
    if len(text) > _LONGEST:
        raise InvalidInput(f"the query has {len(text)} characters, at most {_LONGEST}")
    found: dict[str, Any] = {}
    moment = now or datetime.now(UTC)
    rest = text.strip()
    while rest:
        term = _TERM.match(rest)
        if term is None:
            raise InvalidInput(
                f"the query cannot be understood at {rest[:40]!r}: quotes go around a whole value, and "
                'are closed; inside them write \\" for a quote'
            )
        _add(found, term[1], term[2], moment)
        rest = rest[term.end() :].lstrip()
    return found


def _add(found: dict[str, Any], qualifier: str | None, written: str, now: datetime) -> None:
    if qualifier is None and not written.startswith('"') and ":" in written:
        qualifier, written = written.split(":", 1)
    quoted = _QUOTED.fullmatch(written)
    if '"' in written and not quoted and qualifier != "entity":
        raise InvalidInput(f"{written}: quotes go around the whole value")
    value = re.sub(r'\\(["\\])', r"\1", written[1:-1]) if quoted else written
    if qualifier is None:
        found["text"] = (*found.get("text", ()), value)
    elif qualifier == "error":
        found["error"] = (*found.get("error", ()), value)
    elif qualifier == "status":
        found["status"] = [*found.get("status", []), *_statuses(value)]
    elif qualifier.startswith("payload.") and len(qualifier) > len("payload."):
        _set(found.setdefault("payload", {}), qualifier.removeprefix("payload."), value, qualifier)
    else:
        for name, given in _argument(qualifier, value, now).items():
            _set(found, name, given, qualifier)


def _set(found: dict[Any, Any], name: Any, value: Any, qualifier: str) -> None:
    if name in found:
        raise InvalidInput(f"{qualifier}: was given twice, and a job has one: give it once")
    found[name] = value


def _statuses(value: str) -> list[str]:
    known = [one.strip() for one in value.split(",")]
    if not all(one in set(Status) for one in known):
        raise InvalidInput(f"status:{value}: the statuses are {', '.join(Status)}")
    return known


def _argument(qualifier: str, value: str, now: datetime) -> dict[str, Any]:
    """Return the argument of `make_filter` for a qualifier that may be given once."""
    match qualifier:
        case "queue" | "key" | "id":
            return {qualifier: value}
        case "worker":
            return {"worker_id": value}
        case "type" if value.startswith("="):
            return {"type": value[1:]}
        case "type":
            return {"prefix": value.removesuffix("*")}
        case "entity":
            return {"entity": validation.entity_of(value, f"entity:{value}")}
        case "priority":
            return _priority(value)
        case "after":
            return {"since": _moment(value, now, qualifier)}
        case "before":
            return {"until": _moment(value, now, qualifier)}
    raise InvalidInput(
        f"{qualifier}: is no qualifier: there are {', '.join(QUALIFIERS)}; quotes make it a text: "
        f"{quote(f'{qualifier}:{value}')}"
    )


def _priority(value: str) -> dict[str, Any]:
    bound = _BOUND.fullmatch(value)
    if bound is None or (bound[1] and bound[3]):
        raise InvalidInput(f"priority:{value}: write 5, >5, >=5, <5, <=5 or 1..5")
    sign, number, last = bound[1], int(bound[2]), bound[3]
    match sign:
        case ">":
            return {"min_priority": number + 1}
        case ">=":
            return {"min_priority": number}
        case "<":
            return {"max_priority": number - 1}
        case "<=":
            return {"max_priority": number}
    return {"min_priority": number, "max_priority": number if last is None else int(last)}


def _moment(value: str, now: datetime, qualifier: str) -> datetime:
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    try:
        return now - timedelta(seconds=seconds(value))
    except (InvalidInput, OverflowError):
        raise InvalidInput(
            f"{qualifier}:{value}: write a moment such as 2026-11-01 or 2026-11-01T12:00 (UTC, or with "
            "an offset), or an age such as 90s, 2h or 7d"
        ) from None
