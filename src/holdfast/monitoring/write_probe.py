"""Does the database commit a write? `app.health()` asks, and the answer is kept for ten seconds."""

import threading
import time
from weakref import WeakKeyDictionary

from holdfast.engine.engine import Engine
from holdfast.errors import HoldfastError

KEPT = 10.0  #: seconds that a good answer is kept, in this process
_FAILURE_KEPT = 1.0


class WriteProbe:
    """The last answer of one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._problem: str | None = None

    def problem(self, engine: Engine) -> str | None:
        """Why the database does not commit a write; None if it does. Callers that come while the
        database is asked wait for that answer."""
        with self._lock:
            if time.monotonic() >= self._until:
                try:
                    engine.probe()
                    self._problem, kept = None, KEPT
                except HoldfastError as problem:  # whatever it is: a job could not be written now
                    self._problem, kept = str(problem), _FAILURE_KEPT
                self._until = time.monotonic() + kept
            return self._problem


_probes: WeakKeyDictionary[Engine, WriteProbe] = WeakKeyDictionary()
_making = threading.Lock()


def write_problem(engine: Engine) -> str | None:
    """Why this engine's database does not commit a write; None if it does, or did lately."""
    with _making:
        probe = _probes.setdefault(engine, WriteProbe())
    return probe.problem(engine)
