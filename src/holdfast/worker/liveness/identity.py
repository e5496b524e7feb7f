"""A worker's registration in the database: its id, its last heartbeat, and a new id after it was
declared dead."""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable

from holdfast.engine.engine import Engine
from holdfast.errors import AppClosed, HoldfastError
from holdfast.worker.liveness.heartbeat import boottime

logger = logging.getLogger("holdfast.worker")

_LONGEST_PAUSE = 5.0


def new_worker_id() -> str:
    """Return an id such as host-pid-random. A pid is used again after a reboot, an id never is."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


class WorkerIdentity:
    def __init__(
        self,
        engine: Engine,
        info: Callable[[], str],
        began: Callable[[str], None],
        died: Callable[[], None],
    ) -> None:
        """`began`: called with each new id; `died`: called when the id was declared dead."""
        self.id: str | None = None
        self._engine = engine
        self._info = info
        self._began = began
        self._died = died
        self._confirmed = boottime()
        self._stopping = False

    def begin(self) -> None:
        """Take a new id; the first heartbeat inserts its row."""
        id = new_worker_id()
        before = boottime()
        self._engine.beat(id, self._info())
        self._confirmed = before
        self.id = id
        self._began(id)

    def confirmed(self, moment: float) -> None:
        """Record that a heartbeat was written whose write began at this time (by `boottime`)."""
        self._confirmed = moment

    def silence(self) -> float:
        """Return the seconds since the last heartbeat that was written."""
        return boottime() - self._confirmed

    def declared_dead(self) -> None:
        """Stop all runs, and register again under a new id."""
        logger.error("worker %s was declared dead", self.id)
        self.id = None
        self._died()
        self._confirmed = boottime()
        threading.Thread(target=self.until_reached, args=[self.begin], daemon=True).start()

    def until_reached(self, work: Callable[[], None]) -> bool:
        """Call `work` as soon as the database can be reached. Returns False if the worker stopped
        before."""
        pause = 0.1
        while not self._stopping:
            try:
                work()
                return True
            except AppClosed:
                break  # the application was closed while we were starting
            except HoldfastError as problem:
                logger.warning("the worker waits for the database: %s", problem)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return False

    def end(self) -> None:
        self._stopping = True
