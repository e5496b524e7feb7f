"""Cases of SQLite: payloads that must not be rewritten, and processes that share a file."""

import json
import subprocess
import sys
from typing import NamedTuple

from bench.cases.jobs import BatchWork
from bench.databases import SqliteDatabases
from bench.job_store import LARGE
from bench.measure import Case, Pace, Row, at_least, at_most, compare
from holdfast import Holdfast

PROCESSES = 4
BATCH = 100


def cases() -> list[Case[SqliteDatabases]]:
    return [Case("large", large), Case("processes", processes)]


def large(databases: SqliteDatabases, pace: Pace) -> list[Row]:
    """Large against small payloads: their cost when only the status of a job changes."""
    with databases.holdfast() as small, databases.holdfast() as big:
        base, other = BatchWork(small, BATCH), BatchWork(big, BATCH, LARGE)
        title = f"claim and finish, {LARGE // 1000} KB against 200 B"
        return [compare(title, base.slice, other.slice, pace, at_least(0.60))]


def processes(databases: SqliteDatabases, pace: Pace) -> list[Row]:
    """No process may starve: with SQLite's own lock, one that writes continuously keeps the others out.
    A single process, measured before and after, shows the cost of taking turns."""
    url = databases.url()
    with Holdfast(url) as app:
        app.migrate()
    before = written(url, 1, pace.processes / 2)
    reports = written(url, PROCESSES, pace.processes)
    after = written(url, 1, pace.processes / 2)
    alone = (before[0].commits + after[0].commits) / pace.processes
    commits = [report.commits for report in reports]
    total = sum(commits) / pace.processes
    least, most = min(commits) / pace.processes, max(commits) / pace.processes
    longest = max(report.longest for report in reports)
    return [
        Row(f"{PROCESSES} processes together against one", alone, total, total / alone),
        Row(f"{PROCESSES} processes, most against least", least, most, most / least, at_most(2.0)),
        Row(f"{PROCESSES} processes, longest wait in s", None, None, longest, at_most(1.0)),
    ]


class Report(NamedTuple):
    """The result of a writer process."""

    commits: int
    longest: float  #: seconds that one enqueue took


def written(url: str, count: int, seconds: float) -> list[Report]:
    """Run writer processes concurrently."""
    command = [sys.executable, "-m", "bench.writer_process", url, str(seconds)]
    writers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        for writer in writers:  # all are ready before any begins
            assert writer.stdout is not None
            writer.stdout.readline()
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        return [Report(**json.loads(writer.communicate()[0])) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
