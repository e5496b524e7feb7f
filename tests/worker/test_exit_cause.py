"""Whether a process died by its own doing."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.worker.processes import exit_cause
from holdfast.worker.processes.exit_cause import OomKills, how, oom_kills, own_making

OWN = ["SEGV", "ABRT", "BUS", "ILL", "FPE", "SYS", "TRAP"]
OTHERS = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "PIPE"]


@pytest.mark.parametrize("name", OWN)
def test_signals_of_the_kernel_are_the_processs_own_doing(name: str) -> None:
    number = getattr(signal, f"SIG{name}")
    assert own_making(-number, 7, 7)
    assert own_making(-number, None, None)
    assert how(-number, 7, 7) == f"SIG{name}"


@pytest.mark.parametrize("name", OTHERS)
def test_signals_of_other_processes_are_not_its_own_doing(name: str) -> None:
    number = getattr(signal, f"SIG{name}")
    assert not own_making(-number, 7, 8)
    assert not own_making(-number, None, None)


@pytest.mark.parametrize("code", [0, 1, 9, 255])
def test_an_exit_is_its_own_doing(code: int) -> None:
    """One that was asked to stop says so in the database, and is not judged."""
    assert own_making(code, 7, 7)
    assert how(code, 7, 7) == f"exit code {code}"


@pytest.mark.parametrize(
    ("before", "now", "own", "words"),
    [
        (7, 7, False, "SIGKILL"),
        (7, 8, True, "SIGKILL, out of memory"),
        (None, 8, True, "SIGKILL"),  # without a counter, it may have been the kernel
        (7, None, True, "SIGKILL"),
        (None, None, True, "SIGKILL"),
    ],
)
def test_a_sigkill_is_its_own_doing_if_the_kernel_sent_it(
    before: int | None, now: int | None, own: bool, words: str
) -> None:
    assert own_making(-9, before, now) is own
    assert how(-9, before, now) == words


def test_unnamed_signals_are_described_by_number() -> None:
    assert how(-60, 7, 7) == "signal 60"
    assert not own_making(-60, 7, 7)


def test_exits_of_real_processes_are_classified() -> None:
    for what, own in [("os.abort()", True), ("os.kill(os.getpid(), 15)", False)]:
        code = subprocess.run([sys.executable, "-c", f"import os; {what}"], check=False).returncode
        assert own_making(code, 7, 7) is own


def test_the_kernels_oom_counter_is_readable() -> None:
    if Path("/proc/vmstat").exists():
        assert isinstance(oom_kills(), int)


def test_the_counter_of_the_control_group_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exit_cause, "_GROUPS", tmp_path)
    machine = oom_kills()
    own = Path("/proc/self/cgroup").read_text() if Path("/proc/self/cgroup").exists() else "0::/"
    [group] = [line.split("::")[1] for line in own.splitlines() if line.startswith("0::")] or ["/"]
    folder = tmp_path / group.strip("/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.events").write_text("low 0\noom 5\noom_kill 41\noom_group_kill 0\n")
    assert oom_kills() == 41
    (folder / "memory.events").write_text("nonsense\n")
    assert oom_kills() == machine


def test_the_older_of_two_readings_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have killed a process just before the newer reading, and it is not reaped yet."""
    kills = iter([1, 2, 3, 4])
    monkeypatch.setattr(exit_cause, "oom_kills", lambda: next(kills))
    looks = OomKills(apart=1.0)
    assert looks.before == 1
    looks.look(10.0)
    assert looks.before == 1
    looks.look(10.5)  # too soon
    assert looks.before == 1
    looks.look(11.0)
    assert looks.before == 2
    looks.look(12.0)
    assert looks.before == 3
