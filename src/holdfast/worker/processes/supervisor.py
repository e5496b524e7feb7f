"""`holdfast worker`: a supervisor and its worker processes.

The supervisor starts processes by exec, sends the heartbeats of live processes, gives back the jobs of
a process that died, starts another process in its place, and replaces a process that cannot stop a
handler past its deadline. Jobs with deaths on record run in extra processes (`isolation.py`). The main
thread watches processes and never touches the database; the thread of the heartbeats does.
"""

import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.app import Holdfast
from holdfast.engine.records import Suspects
from holdfast.worker.liveness.heartbeat import Heartbeat, Member
from holdfast.worker.processes.exit_cause import Blame, how
from holdfast.worker.processes.isolation import LevelProcess, plan
from holdfast.worker.processes.watchdog import PAST_DEADLINE, Watchdog
from holdfast.worker.processes.worker_process import WorkerProcess
from holdfast.worker.running.slots import make_lanes

logger = logging.getLogger("holdfast.worker")

_TICK = 0.2
_SLOWEST_RESTART = 10.0
_SHORT_LIFE = 5.0


class Restarts:
    """Decides when processes may be started: there is a pause after several of them died young in a
    row."""

    def __init__(self) -> None:
        self._failures = self._not_started = 0
        self._at = 0.0

    def allowed(self, now: float) -> bool:
        return now >= self._at

    def failed(self, now: float) -> float:
        """Note that no process could be started; return the seconds until the next attempt."""
        pause = min(2.0**self._not_started, _SLOWEST_RESTART)
        self._not_started += 1
        self._at = now + pause
        return pause

    def started(self) -> None:
        self._not_started = 0

    def ended(self, code: int | None, started: float, now: float) -> None:
        self._failures = self._failures + 1 if code and now - started < _SHORT_LIFE else 0
        if self._failures > 2:
            self._at = now + min(0.1 * 2.0**self._failures, _SLOWEST_RESTART)


class Supervisor:
    def __init__(self, app: Holdfast, config: Mapping[str, Any], *, processes: int) -> None:
        self._app = app
        self._config = config
        self._processes = processes
        self._grace: float = config["grace"]
        self._children: dict[int, WorkerProcess] = {}
        self._selector = selectors.DefaultSelector()
        self._heartbeats = Heartbeat(
            app.engine, app.settings.heartbeat, looked=self._look_for_suspects
        )
        self._watchdog = Watchdog(app.engine.lock_holders, self._grace)
        self._suspects: list[Suspects] = []  #: the jobs that wait for a process of their level
        self._planned: Counter[int] = Counter()  #: processes still to be started, by level
        self._lanes = make_lanes(config["queues"], config["concurrency"])
        self._signals = 0
        self._stop_by: float | None = None
        # By whether a process runs jobs with deaths on record: such a job may kill several processes in
        # a row, and the pause after that must not delay the start of ordinary processes.
        self._restarts = {False: Restarts(), True: Restarts()}

    # signals

    def _install(self) -> None:
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
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGUSR1)

    # the loop

    def run(self) -> None:
        self._install()
        self._heartbeats.start()
        steps = (self._spawn, self._listen, self._reap, self._end_stuck, self._obey)
        while self._stop_by is None or self._children:
            for step in steps:
                try:
                    step()
                except Exception:  # as out of memory: the processes need a supervisor
                    logger.exception("a step of the supervisor failed; it goes on")
                    time.sleep(_TICK)
        self._heartbeats.close(2.0)

    def _spawn(self) -> None:
        now = time.monotonic()
        if self._stop_by is not None:
            return
        if self._restarts[False].allowed(now):
            normal = [c for c in self._children.values() if not c.level and not c.replaced]
            for _ in range(self._processes - len(normal)):
                self._start(0)
        if self._suspects and self._restarts[True].allowed(now):
            waiting, self._suspects = self._suspects, []  # the heartbeat thread looks again soon
            self._planned = Counter(plan(waiting, self._lanes, self._level_processes(now)))
        while (levels := sorted(self._planned.elements())) and self._may_start_another(now):
            self._planned[levels[0]] -= 1
            self._start(levels[0])

    def _may_start_another(self, now: float) -> bool:
        """Return whether a process for isolated jobs may be started. More starts than cores would delay
        the replacement of an ordinary process, and none of them would be ready sooner."""
        if not self._restarts[True].allowed(now):
            return False
        starting = sum(
            child.id is None and now - child.started < _SHORT_LIFE
            for child in self._children.values()
        )
        return starting < max(2, os.cpu_count() or 1)

    def _level_processes(self, now: float) -> dict[int, list[LevelProcess]]:
        """Return the processes for jobs with deaths on record, by level."""
        found: dict[int, list[LevelProcess]] = {}
        for child in self._children.values():
            if child.level and not child.replaced:
                # A frozen process takes no jobs, whatever it last reported.
                frozen = child.stopped or child.is_silent(now)
                full = frozen or bool(json.loads(child.info).get("full"))
                found.setdefault(child.level, []).append(LevelProcess(now - child.started, full))
        return found

    def _start(self, level: int) -> None:
        restarts = self._restarts[level > 0]
        try:
            child = WorkerProcess(self._config, level=level)
        except (OSError, MemoryError, subprocess.SubprocessError) as problem:
            pause = restarts.failed(time.monotonic())
            logger.error("no process could be started (%s); next attempt in %g s", problem, pause)
            return
        restarts.started()
        self._children[child.pid] = child
        self._selector.register(child.channel, selectors.EVENT_READ, child)
        purpose = f", for jobs whose process died (level {level})" if level else ""
        logger.info("process %d started%s", child.pid, purpose)

    def _listen(self) -> None:
        for key, _ in self._selector.select(_TICK):
            if key.data is None:
                with suppress(BlockingIOError):
                    self._wakeup[0].recv(4096)
                continue
            child: WorkerProcess = key.data
            messages = child.receive()
            if messages is None:
                self._selector.unregister(child.channel)
                continue
            for message in messages:
                self._heard(child, message)

    def _heard(self, child: WorkerProcess, message: Mapping[str, Any]) -> None:
        if "status" in message:
            child.update(message["status"])
        if "leaving" in message:
            child.leaving = True
        if "hello" in message:
            child.id = message["hello"]
            send = child.channel.send_now
            member = Member(
                id=message["hello"],
                info=child.published_info,
                confirmed=child.confirm,
                dead=partial(send, {"dead": True}),
                stacks_wanted=partial(send, {"stacks": True}),
                stopped=lambda: child.stopped,
            )
            self._heartbeats.add(member)

    def _reap(self) -> None:
        for child in list(self._children.values()):
            try:
                pid, status = os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:  # other code of this process has waited for it
                self._bury(child, None)
                continue
            if pid and (os.WIFSTOPPED(status) or os.WIFCONTINUED(status)):
                child.stopped = os.WIFSTOPPED(status)
            elif pid:
                self._bury(child, os.waitstatus_to_exitcode(status))

    def _bury(self, child: WorkerProcess, code: int | None) -> None:
        """Kill what a dead process started, and give back the jobs that it held. `code`: its exit code;
        None: unknown."""
        child.process.returncode = code
        # Without waiting: processes that it started may hold its end of the connection open.
        while (messages := child.receive(wait=False)) is not None:
            for message in messages:  # its id may be among them
                self._heard(child, message)
        if child.id is not None:  # first: until then its heartbeats are sent
            self._heartbeats.died(child.id, child.death(code))
        del self._children[child.pid]
        with suppress(KeyError):
            self._selector.unregister(child.channel)
        child.channel.close()
        child.kill()
        if code != 0:
            cause = "an unknown exit code" if code is None else how(code)
            logger.error("process %d ended with %s", child.pid, cause)
        self._restarts[child.level > 0].ended(code, child.started, time.monotonic())

    def _end_stuck(self) -> None:
        """Replace processes that drain, kill those that the watchdog finds stuck, and after the grace
        period of a shutdown all that are left."""
        now = time.monotonic()
        for child in self._children.values():
            if child.draining and not child.replaced:
                logger.warning("process %d drains: a handler is stuck in it", child.pid)
                child.replaced = True
            self._watchdog.look(child, now)
        if self._stop_by is not None and now > self._stop_by:
            for child in self._children.values():
                if not child.killed:
                    child.condemned = child.overdue(now, PAST_DEADLINE)
                child.kill(Blame.GIVEN_BACK)

    def _obey(self) -> None:
        """Stop after a signal; stop at once after a second one."""
        if self._signals and self._stop_by is None:
            logger.info("stopping: jobs have %d s to end", self._grace)
            self._stop_by = time.monotonic() + self._grace + 0.9
            for child in self._children.values():
                child.channel.send_now({"stop": self._grace})
        if self._signals > 1:
            self._stop_by = 0.0

    def _look_for_suspects(self) -> None:
        """Read the jobs that wait for a process of their level. The thread of the heartbeats calls
        it."""
        for lane in self._lanes:
            lane.update(self._app.tasks)
        self._suspects = self._app.engine.suspects()
        if self._suspects:
            with suppress(OSError):
                self._wakeup[1].send(b"!")


def supervise(
    location: str,
    app: Holdfast,
    *,
    queues: str | None,
    concurrency: int | None,
    processes: int,
    grace: float,
    log: Mapping[str, Any],
) -> int:
    """Run worker processes until a signal asks to stop; return the exit code."""
    options = {"queues": queues, "concurrency": concurrency, "grace": grace, "log": dict(log)}
    Supervisor(app, {"location": location, **options}, processes=processes).run()
    return 0
