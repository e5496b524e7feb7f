"""`holdfast worker`: a supervisor and its worker processes.

It starts them by exec, beats for those that live, gives back at once what a dead one held, starts it
anew, and replaces one that cannot stop a handler past its deadline. Jobs whose process died under
them are run by an extra process, one at a time. Its main thread watches processes and never touches
the database; the heart's thread does.
"""

import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from holdfast.app import Holdfast
from holdfast.job import Claim
from holdfast.worker.heart import Heart, Member
from holdfast.worker.slots import parse_queues
from holdfast.worker.wire import Wire

logger = logging.getLogger("holdfast.worker")

PAST_DEADLINE = 10.0  # seconds: by then a child that can still act has begun to replace itself
_TICK = 0.2
_SLOWEST_RESTART = 10.0
_SHORT_LIFE = 5.0


class Child:
    """A worker process, as its supervisor knows it."""

    def __init__(self, config: Mapping[str, Any], *, alone: bool) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "holdfast.worker.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # a Ctrl-C at the terminal is for us alone
            )
        ours.setblocking(True)
        self.socket = ours
        self.wire = Wire(ours)
        self.pid = self.process.pid
        self.alone = alone
        self.started = time.monotonic()
        self.id: str | None = None
        self.info = "{}"
        self.stopped = False  #: by SIGSTOP
        self.draining = False
        self.replaced = False
        self.killed = False
        self.deadlines: list[tuple[str, int, float, str]] = []
        self.kids: list[int] = []
        self.buffer = b""
        self.wire.send({**config, "alone": alone})

    def receive(self) -> list[dict[str, Any]] | None:
        """What it said; None: it closed its end."""
        try:
            data = self.socket.recv(65536)
        except OSError:
            return None
        if not data:
            return None
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def confirm(self, moment: float) -> None:
        self.wire.send({"beat": moment})

    def tell_dead(self) -> None:
        self.wire.send({"dead": True})

    def ask_stacks(self) -> None:
        self.wire.send({"stacks": True})

    def update(self, status: Mapping[str, Any]) -> None:
        self.info = status["info"]
        self.draining = status["draining"]
        self.kids = status["kids"]
        self.deadlines = [tuple(one) for one in status["deadlines"]]

    def overdue(self, now: float) -> list[tuple[Claim, str]]:
        """Runs that are so far past their deadline that the child cannot be trusted to act."""
        return [
            (Claim(id, claim_no), verdict)
            for id, claim_no, deadline, verdict in self.deadlines
            if now > deadline + PAST_DEADLINE
        ]

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """With all that it started."""
        self.killed = True
        for group in [self.pid, *self.kids]:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)


class Supervisor:
    def __init__(
        self, app: Holdfast, config: Mapping[str, Any], *, processes: int, grace: float
    ) -> None:
        self._app = app
        self._config = config
        self._processes = processes
        self._grace = grace
        self._children: dict[int, Child] = {}
        self._selector = selectors.DefaultSelector()
        self._heart = Heart(app.engine, app.settings.heartbeat, looked=self._look_for_suspects)
        self._suspects = False
        self._signals = 0
        self._stop_by: float | None = None
        self._failures = 0
        self._restart_at = 0.0

    # signals

    def install(self) -> None:
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        self._wakeup = (reader, writer)
        self._selector.register(reader, selectors.EVENT_READ)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_stop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGUSR1, self._asked_for_stacks)

    def _asked_to_stop(self, number: int, frame: object) -> None:
        self._signals += 1

    def _asked_for_stacks(self, number: int, frame: object) -> None:
        for child in list(self._children.values()):
            child.signal(signal.SIGUSR1)

    # the loop

    def run(self) -> int:
        self._heart.start()
        while self._stop_by is None or self._children:
            self._spawn()
            self._listen()
            self._reap()
            self._judge(time.monotonic())
            if self._signals:
                self._stop()
        self._heart.close(2.0)
        return 0

    def _spawn(self) -> None:
        if self._stop_by is not None or time.monotonic() < self._restart_at:
            return
        normal = [c for c in self._children.values() if not c.alone and not c.replaced]
        for _ in range(self._processes - len(normal)):
            self._start(alone=False)
        if self._suspects:
            self._suspects = False  # one that runs takes them; when it ends, we look again
            if not any(child.alone for child in self._children.values()):
                self._start(alone=True)

    def _start(self, *, alone: bool) -> None:
        child = Child(self._config, alone=alone)
        self._children[child.pid] = child
        self._selector.register(child.socket, selectors.EVENT_READ, child)
        logger.info("process %d started%s", child.pid, ", for jobs to run alone" if alone else "")

    def _listen(self) -> None:
        for key, _ in self._selector.select(_TICK):
            if key.data is None:
                with suppress(BlockingIOError):
                    self._wakeup[0].recv(4096)
                continue
            child: Child = key.data
            messages = child.receive()
            if messages is None:
                self._selector.unregister(child.socket)
                continue
            for message in messages:
                self._heard(child, message)

    def _heard(self, child: Child, message: Mapping[str, Any]) -> None:
        if "status" in message:
            child.update(message["status"])
        if "hello" in message:
            child.id = message["hello"]
            self._heart.add(
                Member(
                    message["hello"],
                    lambda: child.info,
                    child.confirm,
                    child.tell_dead,
                    lambda: child.stopped,
                    child.ask_stacks,
                )
            )

    def _reap(self) -> None:
        for child in list(self._children.values()):
            pid, status = os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not pid:
                continue
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                child.stopped = os.WIFSTOPPED(status)
                continue
            self._buried(child, os.waitstatus_to_exitcode(status))

    def _buried(self, child: Child, code: int) -> None:
        """A child is gone: what it started goes too, and what it held is given back."""
        child.process.returncode = code
        del self._children[child.pid]
        with suppress(KeyError):
            self._selector.unregister(child.socket)
        child.wire.close()
        if child.id is not None:
            verdicts = child.overdue(time.monotonic()) if child.killed else []
            self._heart.died(child.id, verdicts, orderly=child.killed)
        child.kill()
        if code == 0:
            self._failures = 0
            return
        logger.error("process %d ended with %s", child.pid, _how(code))
        short = time.monotonic() - child.started < _SHORT_LIFE
        self._failures = self._failures + 1 if short else 0
        if self._failures > 2:
            pause = min(0.1 * 2.0**self._failures, _SLOWEST_RESTART)
            self._restart_at = time.monotonic() + pause

    def _judge(self, now: float) -> None:
        for child in self._children.values():
            if child.draining and not child.replaced:
                logger.warning("process %d drains: a handler is stuck in it", child.pid)
                child.replaced = True
            limit = self._grace + PAST_DEADLINE if child.draining else 0.0
            if any(now > deadline + PAST_DEADLINE + limit for *_, deadline, _ in child.deadlines):
                logger.error("process %d is killed: a handler is stuck in it", child.pid)
                child.kill()
                child.deadlines = [
                    (*one[:2], 0.0, one[3]) for one in child.deadlines if one[2] < now
                ]
        if self._stop_by is not None and now > self._stop_by:
            for child in self._children.values():
                child.kill()

    def _stop(self) -> None:
        if self._stop_by is None:
            logger.info("stopping: %d s for what runs", self._grace)
            self._stop_by = time.monotonic() + self._grace + 0.9
            for child in self._children.values():
                child.wire.send({"stop": self._grace})
        if self._signals > 1:
            self._stop_by = 0.0

    def _look_for_suspects(self) -> None:
        """In the heart's thread."""
        queues = parse_queues(self._config["queues"])
        for queue, type in self._app.engine.suspects():
            if queue in queues and type in self._app.tasks:
                self._suspects = True
                with suppress(OSError):
                    self._wakeup[1].send(b"!")
                return


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def supervise(
    location: str,
    app: Holdfast,
    *,
    queues: str | None = None,
    concurrency: int | None = None,
    processes: int = 1,
    grace: float = 30.0,
    log: Mapping[str, Any] | None = None,
) -> int:
    """Run worker processes until told to stop; the exit code."""
    config = {
        "location": location,
        "queues": queues,
        "concurrency": concurrency,
        "grace": grace,
        "log": dict(log or {}),
    }
    supervisor = Supervisor(app, config, processes=processes, grace=grace)
    supervisor.install()
    return supervisor.run()
