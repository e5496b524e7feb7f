"""A worker process under a supervisor: runs a worker, reports its status, and follows requests.

When the supervisor is dead, it exits at once: no process sends its heartbeats any more.
"""

import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from holdfast.app_loader import load
from holdfast.core.log_format import configure
from holdfast.errors import HoldfastError
from holdfast.worker.processes.ipc import Channel
from holdfast.worker.processes.run_table import RunTable
from holdfast.worker.processes.stacks import print_stacks, store_stacks
from holdfast.worker.worker import Worker

logger = logging.getLogger("holdfast.worker")

_PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>
_STATUS = 0.5  # seconds between two messages to the supervisor
_ISOLATION_IDLE = 1.0  # seconds without work, after which a process for isolated jobs exits


class ChildProcess:
    def __init__(self, channel: Channel, config: dict[str, Any], runs: RunTable) -> None:
        self._channel = channel
        self._grace = float(config["grace"])
        self._wake = threading.Event()
        self._stop_within: float | None = None
        self.worker = Worker(
            load(config["location"]),
            queues=config["queues"],
            concurrency=config["concurrency"],
            grace=self._grace,
            level=config["level"],
            registered=self._registered,
            runs=runs,
        )

    def _registered(self, worker: Worker) -> None:
        """Let the supervisor send heartbeats, with our status from the first one on: if it dies with
        us, other workers must know that we had a supervisor, and that no job caused our death."""
        self._channel.send({"status": self._status(), "hello": worker.id})

    def run(self) -> None:
        gc.collect()
        gc.freeze()  # modules stay in memory: the collector need not scan them again and again
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_stop)
        signal.signal(signal.SIGUSR1, lambda number, frame: print_stacks(self.worker))
        threading.Thread(target=self._listen, name="holdfast-link", daemon=True).start()
        self.worker.start()
        threading.Thread(target=self._report, name="holdfast-status", daemon=True).start()
        while self._stop_within is None:
            if self.worker.draining:
                self._replace()
            idle_since = self.worker.isolation.idle_since
            if idle_since is not None and time.monotonic() - idle_since > _ISOLATION_IDLE:
                break
            self._wake.wait(_STATUS)
        self._channel.send({"leaving": True})
        self.worker.stop(self._grace if self._stop_within is None else self._stop_within)
        sys.stdout.flush()
        sys.stderr.flush()
        logging.shutdown()
        os._exit(0)  # a thread that does not return would keep the process alive

    def _listen(self) -> None:
        for message in self._channel:
            if "beat" in message:
                self.worker.identity.confirmed(message["beat"])
            elif "dead" in message:
                threading.Thread(target=self.worker.identity.declared_dead, daemon=True).start()
            elif "stacks" in message:
                threading.Thread(target=store_stacks, args=[self.worker], daemon=True).start()
            elif "stop" in message:
                self._stop_within = message["stop"]
                self._wake.set()
        os._exit(1)

    def _asked_to_stop(self, number: int, frame: object) -> None:
        self._stop_within = self._grace
        self._wake.set()

    def _report(self) -> None:
        """Send the status, also while the worker stops: silence means that this process is frozen."""
        while True:
            try:
                if not self._channel.send({"status": self._status()}):
                    os._exit(1)  # the supervisor is dead, or a handler closed our connection to it
            except Exception:
                logger.exception("the supervisor could not be sent the status of this process")
            time.sleep(_STATUS)

    def _status(self) -> dict[str, Any]:
        worker = self.worker
        info, handlers = worker.info(), worker.pids()
        return {"info": info, "draining": worker.draining, "handlers": handlers}

    def _replace(self) -> None:
        """Exit because a thread is stuck: wait for the other runs first, and record the timeouts of the
        stuck ones."""
        deadline = time.monotonic() + self._grace
        while time.monotonic() < deadline and self._stop_within is None:
            if all(execution.stuck for execution in self.worker.executions()):
                break
            self._wake.wait(_STATUS)
        for execution in self.worker.executions():
            if execution.stuck:
                try:
                    self.worker.engine.record_verdict(execution.claim, execution.timed_out().error)
                except HoldfastError as problem:
                    logger.warning("job %s: %s", execution.job.id, problem)
        self._stop_within = 0.0


def end_with_parent() -> None:
    """Let the kernel kill this process when its supervisor dies, where it can (Linux). `_listen`
    notices that, too, but not while a handler holds Python's interpreter lock."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    end_with_parent()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    page = int(sys.argv[2])
    runs = RunTable(page)
    os.close(page)
    config = next(iter(channel))
    configure(**config["log"])
    ChildProcess(channel, config, runs).run()


if __name__ == "__main__":
    main()
