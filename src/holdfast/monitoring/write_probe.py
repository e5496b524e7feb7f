"""Does the database commit a write? `app.health()` tries, and the result is cached for ten seconds."""

import threading
import time
from weakref import WeakKeyDictionary

from holdfast.engine.engine import Engine
from holdfast.errors import HoldfastError

KEPT = 10.0  #: seconds that a success is cached, in this process
_FAILURE_KEPT = 1.0


class WriteProbe:
    """The last result for one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._problem: str | None = None

    def problem(self, engine: Engine) -> str | None:
        """Return why the database does not commit a write, or None. Concurrent callers share one
        write."""
        with self._lock:
            if time.monotonic() >= self._until:
                try:
                    engine.probe()
                    self._problem, kept = None, KEPT
                except HoldfastError as problem:  # of any kind: a job could not be written either
                    self._problem, kept = str(problem), _FAILURE_KEPT
                self._until = time.monotonic() + kept
            return self._problem


_probes: WeakKeyDictionary[Engine, WriteProbe] = WeakKeyDictionary()
_making = threading.Lock()


def write_problem(engine: Engine) -> str | None:
    """Return why this engine's database does not commit a write; None if it does, or recently did."""
    with _making:
        probe = _probes.setdefault(engine, WriteProbe())
    return probe.problem(engine)
