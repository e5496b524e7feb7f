"""Exceptions by which a handler decides what happens to its job: Discard, Retry, Snooze."""

from holdfast.core.duration import Duration, seconds


class Discard(Exception):
    """Fail for good, without a retry."""


class Retry(Exception):
    """Fail, and retry after the given time, if an attempt is left."""

    def __init__(self, message: str = "", *, after: Duration) -> None:
        super().__init__(message)
        self.after = seconds(after, what="Retry(after=)")


class Snooze(Exception):
    """Run again later, without using up an attempt."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"for {delay}")
        self.delay = seconds(delay, what="Snooze(delay)")
