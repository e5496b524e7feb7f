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
    """The duration in seconds; `what` is named in the error."""
    result = _parse(value)
    if result is None or not math.isfinite(result) or not 0 <= result <= _LONGEST:
        raise InvalidInput(
            f"{what}={value!r}: give seconds, a timedelta, or a string such as '90s', '30m', "
            "'1h 30m', '7d'; not negative, at most 100 years"
        )
    return result


def _parse(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e300 else None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        text = value.strip().lower()
        parts = _PART.findall(text)
        if parts and not _PART.sub("", text).strip():
            return sum(float(number) * _UNITS[unit] for number, unit in parts)
    return None
