"""The witness: what really happened, written down by every process as it happens, and the checker
that compares it with what must hold. One line a fact, appended by a single write; a process killed at
that very moment can tear its own line, and no other. Times are the machine's monotonic clock."""

import os
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple


class Witness:
    """Where one process writes what it does."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(
        self,
        what: str,
        job: str = "-",
        claim_no: int = 0,
        *,
        pid: int | None = None,
        at: float | None = None,
        worker: str = "-",
        under: str = "-",
    ) -> None:
        """start, end, accepted: of a claim; kill, freeze: of a process; dead: of a worker. `at`: when
        it was, if not now. `under`: the limits or the due moment that a run is for; no spaces."""
        pid = os.getpid() if pid is None else pid
        at = time.monotonic() if at is None else at
        line = f"\n{what} {job} {claim_no} {pid} {at:.6f} {worker} {under} ."
        os.write(self._file, line.encode())

    def close(self) -> None:
        os.close(self._file)


class Fact(NamedTuple):
    what: str
    job: str
    claim_no: int
    pid: int
    at: float
    worker: str = "-"  #: its id: a process that was taken for dead has another one afterwards
    under: str = "-"  #: limits, with commas between them


def read(path: str | Path) -> list[Fact]:
    facts = []
    for line in Path(path).read_text().splitlines():
        words = line.split()
        if len(words) == 8 and words[-1] == ".":  # else torn: by a kill, or not yet whole
            what, job, claim_no, pid, at, worker, under, _ = words
            facts.append(Fact(what, job, int(claim_no), int(pid), float(at), worker, under))
    return sorted(facts, key=lambda fact: fact.at)


@dataclass
class Findings:
    """What broke a promise; all of them empty when nothing did."""

    lost: list[str] = field(default_factory=list)  #: acknowledged, and in no final status
    unexpected: list[str] = field(default_factory=list)  #: run or finished, and never enqueued
    overlapping: list[str] = field(default_factory=list)  #: two live runs of one job at once
    finished_twice: list[str] = field(default_factory=list)  #: two accepted finishes of one claim
    out_of_order: list[str] = field(default_factory=list)  #: claim numbers that did not grow
    over_limit: list[str] = field(default_factory=list)  #: more at once than allowed


class _Run(NamedTuple):
    job: str
    claim_no: int
    pid: int
    begin: float
    end: float
    under: str = "-"


def check(
    facts: Collection[Fact],
    enqueued: Collection[str],
    statuses: Mapping[str, str],
    *,
    finals: Collection[str] = ("completed",),
    limits: Mapping[str, int] | None = None,
) -> Findings:
    """`statuses`: of every job that the database has, at the end. `finals`: how jobs may end.
    `limits`: how many may run at once under each name that a start has in its `under`."""
    expected = set(enqueued)
    findings = Findings()
    findings.lost = [id for id in expected if statuses.get(id) not in finals]
    started = {fact.job for fact in facts if fact.what == "start"}
    findings.unexpected = sorted((set(statuses) | started) - expected)
    runs = _runs(facts)
    by_job: dict[str, list[_Run]] = defaultdict(list)
    for run in runs:
        by_job[run.job].append(run)
    for job, of_job in by_job.items():
        of_job.sort(key=lambda run: run.begin)
        for before, after in pairwise(of_job):
            if after.begin < before.end:
                findings.overlapping.append(f"{job}: {before} and {after}")
            if after.claim_no <= before.claim_no:
                findings.out_of_order.append(f"{job}: {before} and {after}")
    accepted: dict[tuple[str, int], int] = defaultdict(int)
    for fact in facts:
        if fact.what == "accepted":
            accepted[fact.job, fact.claim_no] += 1
    findings.finished_twice = [f"{claim}" for claim, times in accepted.items() if times > 1]
    findings.over_limit = _over(runs, limits or {})
    return findings


def _over(runs: Collection[_Run], limits: Mapping[str, int]) -> list[str]:
    """The starts that were one too many."""
    found = []
    for name, crowds in _crowds(runs).items():
        most = limits.get(name)
        found += [
            f"{name}: {len(crowd)} of {most} at once: {sorted(crowd)}"
            for crowd in crowds
            if most is not None and len(crowd) > most
        ]
    return found


def most_at_once(facts: Collection[Fact]) -> dict[str, int]:
    """How many ran at once under each limit, at the most: whether it was ever full."""
    found = _crowds(_runs(facts))
    return {name: max(len(crowd) for crowd in crowds) for name, crowds in found.items()}


def _crowds(runs: Collection[_Run]) -> dict[str, list[frozenset[_Run]]]:
    """Of each limit, what ran at each start under it. Of one moment, ends come before starts."""
    moments: dict[str, list[tuple[float, int, _Run]]] = defaultdict(list)
    for run in runs:
        for name in run.under.split(",") if run.begin < run.end else ():
            moments[name] += [(run.begin, 1, run), (run.end, 0, run)]
    crowds: dict[str, list[frozenset[_Run]]] = defaultdict(list)
    for name, times in moments.items():
        live: set[_Run] = set()
        for _, begins, run in sorted(times):
            (live.add if begins else live.discard)(run)
            if begins:
                crowds[name].append(frozenset(live))
    return crowds


def _runs(facts: Collection[Fact]) -> list[_Run]:
    """Each run from its start to its end, or to the death of its process. One whose worker others
    declared dead counts until then (or, where nobody wrote that down, until it was frozen): what it
    does later must change nothing."""
    deaths: dict[int, list[float]] = defaultdict(list)
    freezes: dict[int, list[float]] = defaultdict(list)
    declared = {fact.worker: fact.at for fact in facts if fact.what == "dead"}
    for fact in facts:
        if fact.what == "kill":
            deaths[fact.pid].append(fact.at)
        elif fact.what == "freeze":
            freezes[fact.pid].append(fact.at)
    ends = {(f.job, f.claim_no, f.pid): f.at for f in facts if f.what == "end"}
    found = []
    for fact in facts:
        if fact.what == "start":
            end = ends.get((fact.job, fact.claim_no, fact.pid), float("inf"))
            # A kill is noted by the moment before it, and a number may become another process's.
            death = next((at for at in deaths[fact.pid] if at > fact.at - 1.0), float("inf"))
            freeze = next((at for at in freezes[fact.pid] if at >= fact.at), float("inf"))
            if fact.at > declared.get(fact.worker, float("inf")):
                continue  # it was taken for dead already: nobody believes what it does
            end = max(fact.at, min(end, death, declared.get(fact.worker, freeze)))
            found.append(_Run(fact.job, fact.claim_no, fact.pid, fact.at, end, fact.under))
    return found
