"""Worker processes to be killed: supervisors started by the command, and their children."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.crash.testbed import CrashTestbed, until

ROOT = Path(__file__).resolve().parents[2]

# Outlives this process, however it ends. It reads "+ pid" of each supervisor and "- pid" when that is
# gone, since process ids are reused; when the pipe closes, it kills the supervisors that are left.
REAPER = """
pids=" "
while read sign pid; do
    case $sign in
        +) pids="$pids$pid " ;;
        -) pids="${pids%% $pid *} ${pids#* $pid }" ;;
    esac
done
kill -9 $pids
"""


def environment(testbed: CrashTestbed, heartbeat: float | None) -> dict[str, str]:
    """Return the environment variables that `tasks.py` reads."""
    return {
        **os.environ,
        "HOLDFAST_URL": testbed.url,
        "HOLDFAST_SCHEMA": testbed.schema,
        "HOLDFAST_TEST_HISTORY": str(testbed.history),
        **({} if heartbeat is None else {"HOLDFAST_HEARTBEAT": str(heartbeat)}),
    }


class WorkerGroup:
    """A group of supervisors of one application."""

    def __init__(
        self,
        testbed: CrashTestbed,
        name: str = "workers",
        *,
        app: str = "tests.crash.tasks:app",
        processes: int = 1,
        queues: str = "default=10",
        heartbeat: float | None = None,
        grace: float = 30.0,
        source: Path | None = None,  #: the code of another release
    ) -> None:
        self._scene = testbed
        self._log = testbed.folder / f"{name}.log"
        self.processes = processes
        self._command = [
            *(sys.executable, "-m", "holdfast", "worker", app),
            *("--queues", queues, "--processes", str(processes), "--grace", str(grace)),
        ]
        self._environment = environment(testbed, heartbeat)
        if source is not None:
            self._environment["PYTHONPATH"] = str(source)
        self.supervisors: list[subprocess.Popen[bytes]] = []
        self._gone: set[subprocess.Popen[bytes]] = set()
        self._reaper = subprocess.Popen(
            ["sh", "-c", REAPER],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def start(self, count: int = 1) -> "WorkerGroup":
        for _ in range(count):
            with self._log.open("ab") as log:
                one = subprocess.Popen(
                    self._command, env=self._environment, stdout=log, stderr=log, cwd=ROOT
                )
            self.supervisors.append(one)
            self._notify_keeper("+", one)
        return self

    def _notify_keeper(self, sign: str, one: subprocess.Popen[bytes]) -> None:
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(f"{sign} {one.pid}\n".encode())
        self._reaper.stdin.flush()

    def until_ready(self) -> "WorkerGroup":
        """Wait until the first workers of all supervisors have logged their start."""
        wanted = len(self.supervisors) * self.processes
        until(lambda: self._announced(wanted), 60, f"the start of {wanted} workers")
        return self

    def _announced(self, wanted: int) -> bool:
        assert self.live_supervisors(), "the supervisor ended at once"
        return self.log().count(" started: ") >= wanted

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def live_supervisors(self) -> list[subprocess.Popen[bytes]]:
        for one in self.supervisors:
            if one.poll() is not None and one not in self._gone:
                self._gone.add(one)
                self._notify_keeper("-", one)
        return [one for one in self.supervisors if one.returncode is None]

    def children(self) -> list[int]:
        return [pid for one in self.live_supervisors() for pid in children_of(one.pid)]

    def kill_child(self, pid: int) -> None:
        before = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            # The time before, because its supervisor may react before this line.
            self._scene.note("kill", pid, at=before)

    def kill_supervisor(self, one: subprocess.Popen[bytes]) -> None:
        """Kill a supervisor; its children end by themselves."""
        children = children_of(one.pid)
        one.kill()
        one.wait()
        self.live_supervisors()
        self.wait_until_gone(children)

    def wait_until_gone(self, pids: Iterable[int]) -> None:
        """Wait for the end of processes, and note when each was last seen alive."""
        alive = dict.fromkeys(pids, time.monotonic())

        def all_gone() -> bool:
            for pid in list(alive):
                now = time.monotonic()
                if is_gone(pid):
                    self._scene.note("kill", pid, at=alive.pop(pid))
                else:
                    alive[pid] = now
            return not alive

        until(all_gone, 120, f"the end of processes {list(alive)}", every=0.002)

    def freeze(self, *, children_only: bool = False) -> None:
        """Send SIGSTOP to the supervisors first, which then do not see what happens to their children,
        and to the children; or only to the children."""
        self._signal(signal.SIGSTOP, children_only=children_only)
        for pid in self.children():
            self._scene.note("freeze", pid)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int, *, children_only: bool = False) -> None:
        for one in self.live_supervisors():
            children = children_of(one.pid)
            if not children_only:
                one.send_signal(number)
            for pid in children:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def kill_all(self) -> None:
        self.thaw()
        for one in self.live_supervisors():
            self.kill_supervisor(one)

    def close(self) -> None:
        try:
            self.kill_all()
        finally:
            self._reaper.kill()
            self._reaper.communicate()


@contextmanager
def worker_group(
    testbed: CrashTestbed, name: str = "workers", **options: object
) -> Iterator[WorkerGroup]:
    """A group that is killed at the end of the block; prints its log if an exception is raised."""
    made = WorkerGroup(testbed, name, **options)  # type: ignore[arg-type]
    try:
        yield made
    except BaseException:
        print(f"--- the log of {name}:", *made.log().splitlines()[-60:], sep="\n", file=sys.stderr)
        raise
    finally:
        made.close()


def children_of(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        listed = subprocess.run(
            ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
        )
        text = listed.stdout
    return [int(word) for word in text.split()]


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, even if its parent has not waited for it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].strip()
    except OSError:
        if Path("/proc/self").exists():
            return True
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        state = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return not state or state.startswith("Z")
