"""How a process died, and whether that was its own doing or somebody else's.

An operator's `kill -9` must not count against a job; a job that uses up the memory must, although the
kernel sends the same signal. The kernel counts its own kills: if that number has not grown, the signal
came from somebody else.
"""

import signal
from contextlib import suppress
from enum import Enum
from pathlib import Path

# What the kernel sends for something that the process did, and what `abort()` raises.
_OWN = frozenset(
    getattr(signal, f"SIG{name}")
    for name in ("SEGV", "ABRT", "BUS", "ILL", "FPE", "SYS", "TRAP", "XCPU", "XFSZ")
    if hasattr(signal, f"SIG{name}")
)
_GROUPS = Path("/sys/fs/cgroup")


class Judgement(Enum):
    """What a death says of the runs that had begun in the process, where its supervisor knows that."""

    GIVEN_BACK = "given back"  #: none of them did it
    DEATH = "death"  #: one of them may have done it
    CRASH = "crash"  #: they did it


def own_making(code: int, oom_kills_before: int | None, oom_kills_now: int | None) -> bool:
    """Whether a process died by its own doing. `code`: as `subprocess` has it, below zero for signals.
    An exit of any code is its own doing: a process that was asked to stop says so first, and is not
    judged here."""
    if code >= 0:
        return True
    if code == -signal.SIGKILL:
        return _by_the_kernel(oom_kills_before, oom_kills_now)
    return -code in _OWN


def _by_the_kernel(before: int | None, now: int | None) -> bool:
    """Where the kernel's number cannot be read, it is taken to have been the kernel."""
    return before is None or now is None or now > before


def how(code: int, oom_kills_before: int | None, oom_kills_now: int | None) -> str:
    """The way it died, in words: "SIGSEGV", "exit code 9"."""
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
    """How many processes the kernel has killed for want of memory: in our own control group, if it
    counts them, else on this machine. None: that cannot be read."""
    group = ""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                group = line.removeprefix("0::").strip().lstrip("/")
    for file in (_GROUPS / group / "memory.events", Path("/proc/vmstat")):
        with suppress(OSError, ValueError):
            for line in file.read_text().splitlines():
                word, _, number = line.partition(" ")
                if word == "oom_kill":
                    return int(number)
    return None


class OomKills:
    """What the kernel had counted while the processes that we watch were alive for certain."""

    def __init__(self, apart: float = 1.0) -> None:
        """`apart`: seconds between two looks. The older one counts: a process that was killed just
        before the newer one may not have been waited for yet."""
        self._apart = apart
        self._looked_at = float("-inf")
        self._before = self._latest = oom_kills()

    @property
    def before(self) -> int | None:
        return self._before

    def look(self, now: float) -> None:
        if now - self._looked_at >= self._apart:
            self._looked_at = now
            self._before, self._latest = self._latest, oom_kills()
