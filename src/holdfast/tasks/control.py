"""Exceptions that a handler raises to decide what follows: Discard, Retry, Snooze."""

from holdfast.core.duration import Duration, seconds


class Discard(Exception):
    """Fail for good: trying again would not help."""


class Retry(Exception):
    """Fail, and be tried again after the given time (if an attempt is left)."""

    def __init__(self, message: str = "", *, after: Duration) -> None:
        super().__init__(message)
        self.after = seconds(after, what="Retry(after=)")


class Snooze(Exception):
    """Come back later, without spending an attempt."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"for {delay}")
        self.delay = seconds(delay, what="Snooze(delay)")
