"""A worker process under a supervisor: runs a worker, tells how it does, and obeys.

When the supervisor is gone, it ends at once: nobody beats for it any more.
"""

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.locate import load
from holdfast.logs import configure
from holdfast.worker.stacks import print_stacks, tell_stacks
from holdfast.worker.wire import Wire
from holdfast.worker.worker import Worker

logger = logging.getLogger("holdfast.worker")

_STATUS = 0.5  # seconds between two words to the supervisor
_SOON = 5.0  # seconds ahead, in which the supervisor is told of deadlines
_ALONE_IDLE = 1.0  # seconds without work, after which a process for lone jobs goes


class ChildProcess:
    def __init__(self, wire: Wire, config: dict[str, Any]) -> None:
        self._wire = wire
        self._alone = bool(config["alone"])
        self._grace = float(config["grace"])
        self._wake = threading.Event()
        self._stop_within: float | None = None
        self.worker = Worker(
            load(config["location"]),
            queues=config["queues"],
            concurrency=config["concurrency"],
            grace=self._grace,
            alone=self._alone,
            heart=self._hello,
        )

    def run(self) -> None:
        gc.collect()
        gc.freeze()  # what was imported stays: no need to look at it again and again
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_stop)
        signal.signal(signal.SIGUSR1, lambda number, frame: print_stacks(self.worker))
        threading.Thread(target=self._listen, name="holdfast-link", daemon=True).start()
        self.worker.start()
        while self._stop_within is None:
            self._tell()
            if self.worker.draining:
                self._replace()
            if self._alone and self._has_nothing_to_do():
                break
            self._wake.wait(_STATUS)
        self.worker.stop(self._stop_within if self._stop_within is not None else self._grace)
        sys.stdout.flush()
        sys.stderr.flush()
        logging.shutdown()
        os._exit(0)  # a thread that does not return would keep it alive

    def _hello(self, worker: Worker) -> None:
        self._wire.send({"hello": worker.id})

    def _listen(self) -> None:
        for message in self._wire:
            if "beat" in message:
                self.worker.life.confirmed(message["beat"])
            elif "dead" in message:
                threading.Thread(target=self.worker.life.declared_dead, daemon=True).start()
            elif "stacks" in message:
                threading.Thread(target=tell_stacks, args=[self.worker], daemon=True).start()
            elif "stop" in message:
                self._stop_within = message["stop"]
                self._wake.set()
        os._exit(1)

    def _asked_to_stop(self, number: int, frame: object) -> None:
        self._stop_within = self._grace
        self._wake.set()

    def _tell(self) -> None:
        soon = time.monotonic() + _SOON
        near = [x for x in self.worker.executions() if x.deadline is not None and x.deadline < soon]
        self._wire.send(
            {
                "status": {
                    "info": self.worker.info(),
                    "draining": self.worker.draining,
                    "kids": self.worker.pids(),
                    "deadlines": [
                        [*x.claim, x.deadline, x.timed_out().error]
                        for x in near
                        if x.task.conduct.kind != "process"
                    ],
                }
            }
        )

    def _has_nothing_to_do(self) -> bool:
        since = self.worker.idle_since
        return since is not None and time.monotonic() - since > _ALONE_IDLE

    def _replace(self) -> None:
        """A thread is stuck: wait for the others, leave word of it, and go."""
        deadline = time.monotonic() + self._grace
        while time.monotonic() < deadline and self._stop_within is None:
            if all(execution.stuck for execution in self.worker.executions()):
                break
            self._tell()
            self._wake.wait(_STATUS)
        for execution in self.worker.executions():
            if execution.stuck:
                try:
                    self.worker.engine.sentence(execution.claim, execution.timed_out().error)
                except HoldfastError as problem:
                    logger.warning("job %s: %s", execution.job.id, problem)
        self._stop_within = 0.0


def main() -> None:
    wire = Wire(socket.socket(fileno=int(sys.argv[1])))
    config = next(iter(wire))
    configure(**config["log"])
    ChildProcess(wire, config).run()


if __name__ == "__main__":
    main()
