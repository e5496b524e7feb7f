"""Delays before a retry. `outcome.decide` calls these functions after a run that failed, or whose
payload could not be read; whether the job is retried at all is decided there."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from holdfast.core.duration import Duration, seconds
from holdfast.errors import InvalidInput

_LONGEST = 365 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Growing delays: 5 s, 10 s, 20 s, ... at most an hour, each with up to a tenth added at random, so
    that jobs that failed together are not retried together. `jitter=0`: exact delays."""

    delay: Duration = 5.0  #: before the second attempt
    multiplier: float = 2.0  #: each further delay is so many times as long
    cap: Duration = 3600.0  #: no delay is longer
    jitter: float = 0.1  #: of the delay, at the most

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", seconds(self.delay, what="backoff delay"))
        object.__setattr__(self, "cap", seconds(self.cap, what="backoff cap"))
        for name, lowest, highest in (("multiplier", 1.0, 1000.0), ("jitter", 0.0, 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidInput(f"backoff {name}={value!r}: give a number")
            if not lowest <= value <= highest:
                raise InvalidInput(f"backoff {name}={value!r}: from {lowest:g} to {highest:g}")

    def after(self, attempts: int) -> float:
        """Return the seconds to wait after so many attempts."""
        first, cap = float(self.delay), float(self.cap)  # type: ignore[arg-type]
        try:
            delay = first * self.multiplier ** (attempts - 1)
        except OverflowError:
            delay = cap
        return min(delay * (1 + self.jitter * random.random()), cap)  # noqa: S311


BackoffLike = Backoff | Duration | Callable[[int], Duration]
DEFAULT = Backoff()


def backoff(value: Any, what: str = "backoff") -> Callable[[int], float]:
    """Return the function for a `backoff=` of a task or an application: a Backoff, one duration, or a
    function of the number of attempts so far."""
    if isinstance(value, Backoff):
        return value.after
    if callable(value):
        return partial(_checked, value)
    constant = seconds(value, what=what)
    return lambda attempts: constant


def _checked(function: Callable[[int], Any], attempts: int) -> float:
    """Return the delay that an application's function returns. If it raises or returns no valid delay,
    return that of the default backoff: the failure of the job must be recorded in any case."""
    try:
        delay = seconds(function(attempts), what="backoff")
    except (Exception, SystemExit):
        return DEFAULT.after(attempts)
    return min(delay, _LONGEST) if math.isfinite(delay) else DEFAULT.after(attempts)


#: Part of the error of a job whose payload no worker could read so far; the time follows.
FAILS_AT = "; it fails at "


class GiveBack(NamedTuple):
    """The delay and the error text with which to give back a job whose payload could not be read."""

    delay: float  #: seconds
    text: str  #: what to add to its error


def await_reader(since: datetime, now: datetime, patience: float) -> GiveBack | None:
    """Return how to give back a job that no worker could read since `since`; None after `patience`
    seconds. The delay is as long as the wait so far, from 0.5 s to 30 s. Its jitter keeps a worker of
    the older version from taking the job first each time."""
    fails_at = since + timedelta(seconds=patience)
    if now >= fails_at:
        return None
    waited = min(max((now - since).total_seconds(), 0.5), 30.0)
    return GiveBack(
        waited * (0.75 + 0.5 * random.random()),  # noqa: S311
        f"{FAILS_AT}{fails_at:%Y-%m-%d %H:%M:%S} UTC unless a worker that can read it takes it first",
    )
