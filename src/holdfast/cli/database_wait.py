"""Waiting for a database that does not answer yet, so that a server may start before it."""

import logging
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from holdfast.app import Holdfast
from holdfast.errors import DatabaseBusy, DatabaseUnavailable, HoldfastError, StorageError

logger = logging.getLogger("holdfast.web")

PAUSE = 2.0  #: seconds between two attempts
_AGAIN = 30.0  # seconds after which the same reason is logged again
# Libpq gives no SQLSTATE for a connection that was refused (28P01, 28000, 3D000, and what its own
# checks say): only the text. A text in another language is waited for, and logged.
_FOR_GOOD = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|certificate|SSL was required|"
    r"is not permitted to log in|permission denied for database|"
    r"FATAL: +(role|database) .* does not exist"
)


def is_temporary(problem: HoldfastError, url: str) -> bool:
    """Whether the same attempt may succeed later: the database is busy, or a server does not accept
    connections yet. A SQLite file that cannot be opened is not temporary."""
    if isinstance(problem, DatabaseBusy):
        return True
    if isinstance(problem, StorageError) or not isinstance(problem, DatabaseUnavailable):
        return False
    texts = f"{problem}\n{problem.__cause__ or ''}"
    return url.startswith("postgres") and not _FOR_GOOD.search(texts)


def wait_for_database(
    app: Holdfast, attempt: Callable[[], object], after_failure: Callable[[], object]
) -> None:
    """Repeat `attempt` until the database answers. Meanwhile, SIGTERM and Ctrl-C end the process with
    code 0. Raises an error that is not temporary. `after_failure` is called after each attempt that
    failed."""
    logged, at = "", 0.0
    with _ending_cleanly():
        while True:
            try:
                attempt()
                break
            except HoldfastError as problem:
                if not is_temporary(problem, app.url):
                    raise
                text = str(problem)
            if text != logged or time.monotonic() - at >= _AGAIN:
                logger.warning("waiting for the database: %s; trying again every %g s", text, PAUSE)
                logged, at = text, time.monotonic()
            after_failure()
            time.sleep(PAUSE)
    if logged:
        logger.info("the database answers")


@contextmanager
def _ending_cleanly() -> Iterator[None]:
    """Let signals end the process as they do while it serves."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
