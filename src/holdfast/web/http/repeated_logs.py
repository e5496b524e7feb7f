"""Counts repeated log lines instead of writing them, so that no client can fill a disk."""

import logging
import threading
import traceback

EVERY = 10.0  #: seconds between two reports
_MOST = 100  # different lines in that time


class Repeats(logging.Filter):
    """Passes each line of a logger once in ten seconds. `report` logs how often it was repeated."""

    def __init__(self, now: float = 0.0) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, int, str, str], int] = {}
        self._left_out = 0
        self._since = now

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.name, record.levelno, record.getMessage(), _exception_of(record)
        if getattr(record, "repeats", False):
            return True
        with self._lock:
            if line in self._counts:
                self._counts[line] += 1
            elif len(self._counts) >= _MOST:
                self._left_out += 1
            else:
                self._counts[line] = 0
                return True
        return False

    def report(self, now: float) -> None:
        """Log the counts, if ten seconds have passed."""
        if now - self._since < EVERY:
            return
        with self._lock:
            counts, self._counts = self._counts, {}
            left_out, self._left_out = self._left_out, 0
            seconds, self._since = now - self._since, now
        for (name, level, message, exception), count in counts.items():
            if count:
                text = f"{message.rstrip()}: {exception}" if exception else message
                self._log(name, level, f"{text} ({count:,} times more in the last {seconds:.0f} s)")
        if left_out:
            text = f"{left_out:,} other lines were left out in the last {seconds:.0f} s"
            self._log("holdfast.web", logging.WARNING, text)

    @staticmethod
    def _log(name: str, level: int, text: str) -> None:
        logging.getLogger(name).log(level, "%s", text, extra={"repeats": True})


def _exception_of(record: logging.LogRecord) -> str:
    """Return type and text of the logged exception, since all exceptions of an application have the
    same message; empty without an exception."""
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return "".join(traceback.format_exception_only(record.exc_info[1])).strip()
