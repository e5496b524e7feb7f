"""`holdfast migrate` beside workers of the release before, on tables with many rows: claims and
enqueues go on, nothing is lost, and afterwards workers of both releases share the tables and rescue
each other's jobs."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.crash.testbed import CrashTestbed, Report, pause, until
from tests.crash.worker_group import ROOT, WorkerGroup, worker_group
from tests.support.history import check_history
from tests.support.upgrades import forget_upgrades, make_first_tables, plain, table

# `release`: the commit whose code runs as the release before; "": today's code, on today's tables
# from which the index and the record of the migration were taken away. `stall`: the longest gap, in
# seconds, that claims or enqueues may have.
LONG_RUN = {"rows": 1_000_000, "release": "f046e0b", "stall": 1.0}
ENGINES = ("sqlite", "postgres")
PRODUCER = """
import json, sys, time
from pathlib import Path
from holdfast import Holdfast, HoldfastError
url, schema, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
refused, pauses = [], []
with Holdfast(url, schema=schema) as app, open(folder / "ids", "w", buffering=1) as ids:
    while not (folder / "enough").exists():
        began = time.monotonic()
        try:
            print(app.enqueue("short", {"ms": 5}).id, file=ids)
        except HoldfastError as problem:
            refused.append(str(problem))
        pauses.append((time.monotonic() - began, began))
        time.sleep(0.004)
(folder / "producer.json").write_text(json.dumps({"refused": refused, "longest": max(pauses)}))
"""
FILL = {
    "sqlite": """
        WITH RECURSIVE numbers (n) AS (
            SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}
        )
        INSERT INTO {jobs} (id, type, queue, status, priority, rank, max_attempts, created_at,
            updated_at, run_at, started_at, completed_at, claim_no, finish_no, attempts)
        SELECT printf('%s-7000-8000-%012x', '{prefix}', n), 'filler', 'others',
            CASE WHEN n % 10 = 0 THEN 'pending' ELSE 'completed' END, 0, 0, 3, {now}, {now}, {now},
            {now}, CASE WHEN n % 10 = 0 THEN NULL ELSE {now} END, 1, 1, 1
        FROM numbers""",
    "postgres": """
        INSERT INTO {jobs} (id, type, queue, status, priority, rank, max_attempts, created_at,
            updated_at, run_at, started_at, completed_at, claim_no, finish_no, attempts, payload)
        SELECT ('{prefix}-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'filler', 'others',
            CASE WHEN n % 10 = 0 THEN 'pending' ELSE 'completed' END, 0, 0, 3, now(), now(), now(),
            now(), CASE WHEN n % 10 = 0 THEN NULL ELSE now() END, 1, 1, 1, '{{}}'
        FROM generate_series({first}, {last}) AS numbers (n)""",
}


def run(testbed: CrashTestbed, *, rows: int, release: str, stall: float) -> Report:
    report = Report()
    place = (testbed.kind, testbed.url, testbed.schema)
    source = _source(release, testbed.folder) if release else None
    if source:
        make_first_tables(*place)
    else:
        testbed.app().close()
    _fill(testbed, rows)
    with (
        worker_group(testbed, "before", processes=2, source=source) as before,
        _producer(testbed, source) as produced,
    ):
        before.start().until_ready()
        until(lambda: len(testbed.entries("start")) > 200, 60, "the usual rate of work")
        pause(3.0)
        if not source:
            forget_upgrades(*place)
        began = time.monotonic()
        _migrate(testbed, report)
        ended = time.monotonic()
        report.figures["migrated in"] = f"{ended - began:.1f} s"
        _until_at_work(testbed, before, "the workers go on after the migration")
        starts = [entry.at for entry in testbed.entries("start")]
        usual = _longest_gap([at for at in starts if at < began])
        longest = _longest_gap([at for at in starts if at > began - 1])
        if release:
            _together(testbed, before)
        enqueued, producer = produced()
        _until_finished(testbed, enqueued)
    report.figures |= {
        "rows": rows,
        "jobs": len(enqueued),
        "longest gap of claims": f"{longest:.2f} s (before: {usual:.2f})",
        "longest enqueue": f"{producer['longest'][0]:.2f} s",
    }
    report.expect(not producer["refused"], f"refused: {producer['refused'][:1]}")
    report.expect(longest <= stall, f"no claim for {longest:.2f} s")
    report.expect(
        producer["longest"][0] <= stall, f"an enqueue took {producer['longest'][0]:.2f} s"
    )
    report.take(check_history(testbed.entries(), enqueued, _statuses(testbed)))
    return report


def _source(release: str, folder: Path) -> Path:
    """Check out the code of a release from the history of this repository."""
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", release, "src"], capture_output=True, check=False
    )
    assert archive.returncode == 0, (
        f"the commit {release} is not here, whose code is the release before: fetch the whole history "
        f"(git fetch --unshallow) ({archive.stderr.decode().strip()})"
    )
    target = folder / "release"
    target.mkdir()
    subprocess.run(["tar", "-x", "-C", target], input=archive.stdout, check=True)
    return target / "src"


def _fill(testbed: CrashTestbed, rows: int, chunk: int = 50_000) -> None:
    moment = f"{time.time_ns() // 1_000_000:012x}"
    words = {
        "jobs": table(testbed.kind, testbed.schema, "jobs"),
        "prefix": f"{moment[:8]}-{moment[8:]}",
        "now": time.time_ns() // 1000,
    }
    with plain(testbed.kind, testbed.url) as connection:
        for first in range(1, rows + 1, chunk):
            last = min(first + chunk - 1, rows)
            connection.execute(FILL[testbed.kind].format(first=first, last=last, **words))
            if testbed.kind == "sqlite":
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


@contextmanager
def _producer(
    testbed: CrashTestbed, source: Path | None
) -> Iterator[Callable[[], tuple[list[str], dict[str, Any]]]]:
    """Run a process that enqueues small jobs continuously. Yields a function that stops it and returns
    the acknowledged jobs and their durations."""
    environment = {**os.environ, **({"PYTHONPATH": str(source)} if source else {})}
    process = subprocess.Popen(
        [sys.executable, "-c", PRODUCER, testbed.url, testbed.schema, str(testbed.folder)],
        env=environment,
    )

    def stop() -> tuple[list[str], dict[str, Any]]:
        (testbed.folder / "enough").touch()
        assert process.wait(60) == 0, "the producer failed"
        told = json.loads((testbed.folder / "producer.json").read_text())
        return (testbed.folder / "ids").read_text().split(), told

    try:
        yield stop
    finally:
        process.kill()
        process.wait()


def _migrate(testbed: CrashTestbed, report: Report) -> None:
    """Run `holdfast migrate` with the current code."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "holdfast",
            "migrate",
            "--url",
            testbed.url,
            "--schema",
            testbed.schema,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    applied = done.stdout.split()
    report.expect(
        applied[:1] == ["applied"] and "0001_initial" not in applied,
        f"holdfast migrate: {done.stdout} {done.stderr}",
    )


def _together(testbed: CrashTestbed, before: WorkerGroup) -> None:
    """Run workers of both releases; each rescues the jobs of dead workers of the other."""
    with worker_group(testbed, "after", processes=2) as after:
        after.start().until_ready()
        _until_at_work(testbed, after, "workers of this release claim")
        _until_at_work(testbed, before, "workers of the release before claim beside them")
        before.kill_child(before.children()[0])
        _until_at_work(testbed, after, "workers of this release go on")
        after.kill_all()
    _until_at_work(testbed, before, "workers of the release before go on alone")


def _until_at_work(testbed: CrashTestbed, workers: WorkerGroup, name: str) -> None:
    began = time.monotonic()

    def enough() -> bool:
        pids = set(workers.children())
        done = [
            entry for entry in testbed.entries("accepted") if entry.at > began and entry.pid in pids
        ]
        return len(done) >= 100

    until(enough, 120, name, every=0.2)


def _longest_gap(moments: Collection[float]) -> float:
    ordered = sorted(moments)
    return max(b - a for a, b in pairwise(ordered))


def _until_finished(testbed: CrashTestbed, enqueued: Collection[str]) -> None:
    """Kill a worker with its supervisor: it is declared dead after its silence, and its jobs run
    again."""
    expected = set(enqueued)

    def finished() -> bool:
        found = _statuses(testbed)
        return all(found.get(id) == "completed" for id in expected)

    until(finished, 180, "every job finished", every=1.0)


def _statuses(testbed: CrashTestbed) -> dict[str, str]:
    jobs = table(testbed.kind, testbed.schema, "jobs")
    with plain(testbed.kind, testbed.url) as connection:
        rows = connection.execute(
            f"SELECT CAST(id AS TEXT), status FROM {jobs} WHERE queue = 'default'"
        ).fetchall()
    return dict(rows)
