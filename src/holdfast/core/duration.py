"""Durations, as people write them: seconds, a timedelta, or "30m"."""

import math
import re
from datetime import timedelta

from holdfast.errors import InvalidInput

Duration = float | int | timedelta | str

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])")
_LONGEST = 100 * 365 * 86400.0  # beyond a century it is a mistake, and dates overflow


def seconds(value: Duration, *, what: str = "duration") -> float:
    """Return a duration in seconds. Raises InvalidInput, which names `what`."""
    result = _parse(value)
    if result is None or not math.isfinite(result) or not 0 <= result <= _LONGEST:
        raise InvalidInput(
            f"{what}={value!r}: give seconds, a timedelta, or a string such as '90s', '30m', "
            "'1h 30m', '7d'; not negative, at most 100 years"
        )
    return result


def positive(value: Duration, *, what: str, instead: str = "") -> float:
    """Return a duration in seconds, which may not be 0. `instead`: what else the error suggests."""
    result = seconds(value, what=what)
    if not result:
        raise InvalidInput(f"{what}=0: give a positive duration{instead}")
    return result


def timeout_seconds(value: Duration | None) -> float | None:
    """Return the timeout of a run in seconds; None: no timeout."""
    return (
        None
        if value is None
        else positive(value, what="timeout", instead=", or None for no timeout")
    )


def _parse(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e300 else None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        text = value.strip().lower()
        parts = _PART.findall(text)
        if parts and not _PART.sub("", text).strip():
            return sum(float(number) * _UNITS[unit] for number, unit in parts)
    return None
