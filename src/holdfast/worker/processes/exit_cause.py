"""Finds out how a process died, and whether that was its own doing.

An operator's `kill -9` must not count against a job; a job that uses up the memory must, although the
kernel sends the same signal. The kernel counts its own kills: if its counter has not grown, the signal
came from another process.
"""

import re
import signal
from contextlib import suppress
from enum import Enum
from pathlib import Path

# What the kernel sends for something that the process did, and what `abort()` raises.
_OWN = {
    *(signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE),
    *(signal.SIGSYS, signal.SIGTRAP, signal.SIGXCPU, signal.SIGXFSZ),
}
_GROUPS = Path("/sys/fs/cgroup")


class Blame(Enum):
    """Says whether the runs that had begun in a process caused its death, if its supervisor knows."""

    GIVEN_BACK = "given back"  #: no run caused it: they are given back
    DEATH = "death"  #: one of the runs may have caused it: each has one more death on record
    CRASH = "crash"  #: the runs caused it: a run that was alone has one more crash on record


def own_making(code: int, oom_kills_before: int | None, oom_kills_now: int | None) -> bool:
    """Return whether a process died by its own doing. `code`: as `subprocess` has it, negative for
    signals. An exit with any code is its own doing: a process that was asked to stop tells its
    supervisor first, which does not call this then. Where the kernel's counter cannot be read, a
    SIGKILL is taken to be the kernel's."""
    if code >= 0:
        return True
    if code == -signal.SIGKILL:
        before, now = oom_kills_before, oom_kills_now
        return before is None or now is None or now > before
    return -code in _OWN


def how(code: int, oom_kills_before: int | None = None, oom_kills_now: int | None = None) -> str:
    """Describe how a process died: "SIGSEGV", "exit code 9"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    counted = oom_kills_before is not None and oom_kills_now is not None
    if code == -signal.SIGKILL and counted and own_making(code, oom_kills_before, oom_kills_now):
        return f"{name}, out of memory"
    return name


def oom_kills() -> int | None:
    """Return how many processes the kernel has killed because memory was used up: in our own control
    group, if that has a counter, else on this machine; None if no counter can be read."""
    group = ""
    with suppress(OSError):
        if found := re.search(r"^0::/*(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE):
            group = found[1]
    for file in (_GROUPS / group / "memory.events", Path("/proc/vmstat")):
        with suppress(OSError, ValueError):
            if found := re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE):
                return int(found[1])
    return None


class OomKills:
    """Remembers the kernel's counter from a time when the watched processes were certainly alive."""

    def __init__(self, apart: float = 1.0) -> None:
        """`apart`: seconds between two looks. The older one counts: a process that was killed just
        before the newer one may not have been waited for yet."""
        self._apart = apart
        self._looked_at = float("-inf")
        self.before = self._latest = oom_kills()

    def look(self, now: float) -> None:
        if now - self._looked_at >= self._apart:
            self._looked_at = now
            self.before, self._latest = self._latest, oom_kills()
