"""A history of starts, ends, kills and freezes, written by every process as they happen, and a checker
of the invariants. One line for each entry, appended by a single write, so that a process killed
meanwhile can tear only its own line. Times are the machine's monotonic clock."""

import os
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple


class HistoryWriter:
    """Appends the entries of one process to the history."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(
        self,
        kind: str,
        job: str = "-",
        claim_no: int = 0,
        *,
        pid: int | None = None,
        at: float | None = None,
        worker: str = "-",
        tags: str = "-",
    ) -> None:
        """Append an entry. `kind`: start, end, accepted (of a claim), kill, freeze (of a process), dead
        (of a worker). `at`: its time, if not now. `tags`: the limits or the due time of a run."""
        pid = os.getpid() if pid is None else pid
        at = time.monotonic() if at is None else at
        line = f"\n{kind} {job} {claim_no} {pid} {at:.6f} {worker} {tags} ."
        os.write(self._file, line.encode())

    def close(self) -> None:
        os.close(self._file)


class HistoryEntry(NamedTuple):
    kind: str
    job: str
    claim_no: int
    pid: int
    at: float
    worker: str = "-"  #: its id: a process that was declared dead gets another one
    tags: str = "-"  #: names of limits, separated by commas, or a due time


def read(path: str | Path) -> list[HistoryEntry]:
    entries = []
    for line in Path(path).read_text().splitlines():
        words = line.split()
        if len(words) == 8 and words[-1] == ".":  # else torn by a kill, or not yet complete
            kind, job, claim_no, pid, at, worker, tags, _ = words
            entries.append(
                HistoryEntry(kind, job, int(claim_no), int(pid), float(at), worker, tags)
            )
    return sorted(entries, key=lambda entry: entry.at)


@dataclass
class Violations:
    """The violated invariants; all lists are empty if none was."""

    lost: list[str] = field(default_factory=list)  #: acknowledged, but in no final status
    unexpected: list[str] = field(default_factory=list)  #: run or finished, but never enqueued
    overlapping: list[str] = field(default_factory=list)  #: two concurrent live runs of one job
    finished_twice: list[str] = field(default_factory=list)  #: two accepted finishes of one claim
    out_of_order: list[str] = field(default_factory=list)  #: claim numbers that did not grow
    over_limit: list[str] = field(default_factory=list)  #: more concurrent runs than allowed


class _Run(NamedTuple):
    job: str
    claim_no: int
    pid: int
    begin: float
    end: float
    tags: str = "-"


def check_history(
    entries: Collection[HistoryEntry],
    enqueued: Collection[str],
    statuses: Mapping[str, str],
    *,
    finals: Collection[str] = ("completed",),
    limits: Mapping[str, int] | None = None,
) -> Violations:
    """Check a history. `statuses`: the final status of every job in the database. `finals`: allowed
    final statuses. `limits`: the most concurrent runs for each name in the `tags` of starts."""
    expected = set(enqueued)
    violations = Violations()
    violations.lost = [id for id in expected if statuses.get(id) not in finals]
    started = {entry.job for entry in entries if entry.kind == "start"}
    violations.unexpected = sorted((set(statuses) | started) - expected)
    runs = _runs(entries)
    by_job: dict[str, list[_Run]] = defaultdict(list)
    for run in runs:
        by_job[run.job].append(run)
    for job, of_job in by_job.items():
        of_job.sort(key=lambda run: run.begin)
        for before, after in pairwise(of_job):
            if after.begin < before.end:
                violations.overlapping.append(f"{job}: {before} and {after}")
            if after.claim_no <= before.claim_no:
                violations.out_of_order.append(f"{job}: {before} and {after}")
    accepted: dict[tuple[str, int], int] = defaultdict(int)
    for entry in entries:
        if entry.kind == "accepted":
            accepted[entry.job, entry.claim_no] += 1
    violations.finished_twice = [f"{claim}" for claim, times in accepted.items() if times > 1]
    violations.over_limit = _over(runs, limits or {})
    return violations


def _over(runs: Collection[_Run], limits: Mapping[str, int]) -> list[str]:
    """Return the starts that exceeded a limit."""
    found = []
    for name, concurrent in _concurrent_runs(runs).items():
        most = limits.get(name)
        found += [
            f"{name}: {len(group)} concurrent, limit {most}: {sorted(group)}"
            for group in concurrent
            if most is not None and len(group) > most
        ]
    return found


def peak_concurrency(entries: Collection[HistoryEntry]) -> dict[str, int]:
    """Return the highest number of concurrent runs under each limit."""
    found = _concurrent_runs(_runs(entries))
    return {name: max(len(group) for group in concurrent) for name, concurrent in found.items()}


def _concurrent_runs(runs: Collection[_Run]) -> dict[str, list[frozenset[_Run]]]:
    """Return the concurrent runs at each start, by limit. At equal times, ends come before starts."""
    moments: dict[str, list[tuple[float, int, _Run]]] = defaultdict(list)
    for run in runs:
        for name in run.tags.split(",") if run.begin < run.end else ():
            moments[name] += [(run.begin, 1, run), (run.end, 0, run)]
    concurrent: dict[str, list[frozenset[_Run]]] = defaultdict(list)
    for name, times in moments.items():
        live: set[_Run] = set()
        for _, begins, run in sorted(times):
            (live.add if begins else live.discard)(run)
            if begins:
                concurrent[name].append(frozenset(live))
    return concurrent


def _runs(entries: Collection[HistoryEntry]) -> list[_Run]:
    """Return each run from its start to its end, or to the death of its process. The run of a worker
    that was declared dead counts until then (or, without that entry, until the freeze): what it does
    later must change nothing."""
    deaths: dict[int, list[float]] = defaultdict(list)
    freezes: dict[int, list[float]] = defaultdict(list)
    declared = {entry.worker: entry.at for entry in entries if entry.kind == "dead"}
    for entry in entries:
        if entry.kind == "kill":
            deaths[entry.pid].append(entry.at)
        elif entry.kind == "freeze":
            freezes[entry.pid].append(entry.at)
    ends = {(f.job, f.claim_no, f.pid): f.at for f in entries if f.kind == "end"}
    found = []
    for entry in entries:
        if entry.kind == "start":
            end = ends.get((entry.job, entry.claim_no, entry.pid), float("inf"))
            # A kill is noted with the time before it, and process ids are reused.
            death = next((at for at in deaths[entry.pid] if at > entry.at - 1.0), float("inf"))
            freeze = next((at for at in freezes[entry.pid] if at >= entry.at), float("inf"))
            if entry.at > declared.get(entry.worker, float("inf")):
                continue  # its worker was declared dead before: the run does not count
            end = max(entry.at, min(end, death, declared.get(entry.worker, freeze)))
            found.append(_Run(entry.job, entry.claim_no, entry.pid, entry.at, end, entry.tags))
    return found
