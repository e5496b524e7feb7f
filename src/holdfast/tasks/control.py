"""Exceptions that a handler raises to control what follows its run: Discard, Retry, Snooze.
`jobs/outcome.judge` reads them."""

from holdfast.core.duration import Duration, seconds


class Discard(Exception):
    """Fail the job for good, without a retry."""


class Retry(Exception):
    """Fail this run, and retry the job after the given time, if an attempt is left."""

    def __init__(self, message: str = "", *, after: Duration) -> None:
        super().__init__(message)
        self.after = seconds(after, what="Retry(after=)")


class Snooze(Exception):
    """Run the job again later; this run does not count as an attempt."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"for {delay}")
        self.delay = seconds(delay, what="Snooze(delay)")
