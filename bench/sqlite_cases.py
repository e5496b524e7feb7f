"""What only SQLite is asked: payloads that must not be rewritten, and processes that share a file."""

import json
import subprocess
import sys
from typing import NamedTuple

from bench.cases import Case, Worked
from bench.measure import Pace, Row, at_least, at_most, compare
from bench.places import SqlitePlace
from bench.store import LARGE
from holdfast import Holdfast

PROCESSES = 4
BATCH = 100


def only_sqlite() -> list[Case[SqlitePlace]]:
    return [Case("large", large), Case("processes", processes)]


def large(place: SqlitePlace, pace: Pace) -> list[Row]:
    """Ours against ours: what a payload costs when only its job's status changes."""
    with place.ours() as small, place.ours() as big:
        base, other = Worked(small, BATCH), Worked(big, BATCH, LARGE)
        title = f"claim and finish, {LARGE // 1000} KB against 200 B"
        return [compare(title, base.slice, other.slice, pace, at_least(0.60))]


def processes(place: SqlitePlace, pace: Pace) -> list[Row]:
    """Nobody may starve: SQLite's own lock lets who writes all the time keep the others out. One
    process alone, before and after, tells what the turns between them cost."""
    url = place.url()
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
    """What a writer tells when its time is up."""

    commits: int
    longest: float  #: seconds that one enqueue took


def written(url: str, count: int, seconds: float) -> list[Report]:
    """Let so many processes write at the same time."""
    command = [sys.executable, "-m", "bench.writer", url, str(seconds)]
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
