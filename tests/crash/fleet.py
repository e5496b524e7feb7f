"""Worker processes to be killed: supervisors started as users start them, and their children."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.crash.scene import Scene, until

ROOT = Path(__file__).resolve().parents[2]

# Outlives us by a moment, however we ended. It is told "+ pid" of each supervisor and "- pid" when that
# is gone, as its number may be another's then; when the pipe closes, it kills those that are left.
KEEPER = """
pids=" "
while read sign pid; do
    case $sign in
        +) pids="$pids$pid " ;;
        -) pids="${pids%% $pid *} ${pids#* $pid }" ;;
    esac
done
kill -9 $pids
"""


def environment(scene: Scene, heartbeat: float | None) -> dict[str, str]:
    """What `tasks.py` needs to know."""
    return {
        **os.environ,
        "HOLDFAST_URL": scene.url,
        "HOLDFAST_SCHEMA": scene.schema,
        "HOLDFAST_WITNESS": str(scene.witness),
        **({} if heartbeat is None else {"HOLDFAST_HEARTBEAT": str(heartbeat)}),
    }


class Fleet:
    """Some supervisors of one application."""

    def __init__(
        self,
        scene: Scene,
        name: str = "workers",
        *,
        app: str = "tests.crash.tasks:app",
        processes: int = 1,
        queues: str = "default=10",
        heartbeat: float | None = None,
        grace: float = 30.0,
        source: Path | None = None,  #: the code of another release
    ) -> None:
        self._scene = scene
        self._log = scene.folder / f"{name}.log"
        self.processes = processes
        self._command = [
            *(sys.executable, "-m", "holdfast", "worker", app),
            *("--queues", queues, "--processes", str(processes), "--grace", str(grace)),
        ]
        self._environment = environment(scene, heartbeat)
        if source is not None:
            self._environment["PYTHONPATH"] = str(source)
        self.supervisors: list[subprocess.Popen[bytes]] = []
        self._gone: set[subprocess.Popen[bytes]] = set()
        self._keeper = subprocess.Popen(
            ["sh", "-c", KEEPER],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def start(self, count: int = 1) -> "Fleet":
        for _ in range(count):
            with self._log.open("ab") as log:
                one = subprocess.Popen(
                    self._command, env=self._environment, stdout=log, stderr=log, cwd=ROOT
                )
            self.supervisors.append(one)
            self._tell("+", one)
        return self

    def _tell(self, sign: str, one: subprocess.Popen[bytes]) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{sign} {one.pid}\n".encode())
        self._keeper.stdin.flush()

    def until_ready(self) -> "Fleet":
        """Until the first processes of all supervisors have announced themselves."""
        wanted = len(self.supervisors) * self.processes
        until(lambda: self._announced(wanted), 60, f"the start of {wanted} workers")
        return self

    def _announced(self, wanted: int) -> bool:
        assert self.living(), "the supervisor ended at once"
        return self.log().count(" started: ") >= wanted

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def living(self) -> list[subprocess.Popen[bytes]]:
        for one in self.supervisors:
            if one.poll() is not None and one not in self._gone:
                self._gone.add(one)
                self._tell("-", one)
        return [one for one in self.supervisors if one.returncode is None]

    def children(self) -> list[int]:
        return [pid for one in self.living() for pid in children_of(one.pid)]

    def kill_child(self, pid: int) -> None:
        before = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            # The moment before, because its supervisor may be quicker than we are.
            self._scene.note("kill", pid, at=before)

    def kill_supervisor(self, one: subprocess.Popen[bytes]) -> None:
        """Its children end by themselves, at once."""
        children = children_of(one.pid)
        one.kill()
        one.wait()
        self.living()
        self.bury(children)

    def bury(self, pids: Iterable[int]) -> None:
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
        """Stop them in their tracks: the supervisors first, which then do not see what happens to
        their children, or only the children."""
        self._signal(signal.SIGSTOP, children_only=children_only)
        for pid in self.children():
            self._scene.note("freeze", pid)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int, *, children_only: bool = False) -> None:
        for one in self.living():
            children = children_of(one.pid)
            if not children_only:
                one.send_signal(number)
            for pid in children:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def kill_all(self) -> None:
        self.thaw()
        for one in self.living():
            self.kill_supervisor(one)

    def close(self) -> None:
        try:
            self.kill_all()
        finally:
            self._keeper.kill()
            self._keeper.communicate()


@contextmanager
def fleet(scene: Scene, name: str = "workers", **options: object) -> Iterator[Fleet]:
    """Killed at the end; when something went wrong, their last words are shown."""
    made = Fleet(scene, name, **options)  # type: ignore[arg-type]
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
    """Also when nobody has waited for it yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].strip()
    except OSError:
        if Path("/proc/self").exists():
            return True
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        state = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return not state or state.startswith("Z")
