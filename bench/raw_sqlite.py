"""The baseline on SQLite: the standard library's driver, WAL, a sync for every commit, one thread."""

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from bench.job_store import KEEP, QUEUE, RESULT, SMALL, TYPE, WORKER, arguments
from holdfast.core.ids import new_id

_INSERT_JOB = """
INSERT INTO holdfast_jobs
       (id, type, queue, status, priority, rank, max_attempts, created_at, updated_at, run_at)
VALUES (?, ?, ?, 'pending', 0, 0, 3, ?, ?, ?)
"""
_INSERT_BODY = "INSERT INTO holdfast_payloads (job_id, payload) VALUES (?, ?)"
_CLAIM = """
UPDATE holdfast_jobs
   SET status = 'running', worker_id = ?, claim_no = claim_no + 1, attempts = attempts + 1,
       started_at = ?, updated_at = ?
 WHERE id IN (SELECT id
                FROM holdfast_jobs
               WHERE status = 'pending' AND queue = ? AND type = ?
               ORDER BY rank, run_at, id
               LIMIT ?)
RETURNING id, claim_no, attempts
"""
_PAYLOADS = """
SELECT job_id, payload FROM holdfast_payloads WHERE job_id IN (SELECT value FROM json_each(?))
"""
_FINISH_JOB = """
UPDATE holdfast_jobs
   SET status = 'completed', completed_at = ?, keep_until = ?, updated_at = ?, finish_no = claim_no
 WHERE id = ? AND claim_no = ? AND status = 'running'
"""
_FINISH_BODY = "INSERT OR REPLACE INTO holdfast_results (result, job_id) VALUES (?, ?)"

Item = tuple[tuple[object, ...], tuple[str, str]]  #: the rows of both tables
Held = tuple[str, int, int, str]


class RawSqlite:
    """Only statements: no checks, no objects, positional parameters."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._cursor = self._connection.cursor()
        self._cursor.execute("PRAGMA journal_mode = WAL")
        self._cursor.execute("PRAGMA synchronous = FULL")
        self._cursor.execute("PRAGMA wal_autocheckpoint = 2000")  # as long a log as the library's
        self._cursor.execute("PRAGMA temp_store = MEMORY")

    def make(self, count: int, size: int = SMALL) -> Sequence[Item]:
        now = _microseconds()
        payload = json.dumps(arguments(0, size))
        ids = [new_id() for _ in range(count)]
        return [((id, TYPE, QUEUE, now, now, now), (id, payload)) for id in ids]

    def insert_one(self, item: Item) -> None:
        self._cursor.execute("BEGIN IMMEDIATE")
        self._cursor.execute(_INSERT_JOB, item[0])
        self._cursor.execute(_INSERT_BODY, item[1])
        self._cursor.execute("COMMIT")

    def insert_many(self, items: Sequence[Item]) -> None:
        self._cursor.execute("BEGIN IMMEDIATE")
        self._cursor.executemany(_INSERT_JOB, (item[0] for item in items))
        self._cursor.executemany(_INSERT_BODY, (item[1] for item in items))
        self._cursor.execute("COMMIT")

    def claim(self, limit: int) -> Sequence[Held]:
        now = _microseconds()
        self._cursor.execute("BEGIN IMMEDIATE")
        self._cursor.execute(_CLAIM, (WORKER, now, now, QUEUE, TYPE, limit))
        rows = self._cursor.fetchall()
        self._cursor.execute(_PAYLOADS, (json.dumps([row[0] for row in rows]),))
        payloads = dict(self._cursor.fetchall())
        self._cursor.execute("COMMIT")
        return [(*row, payloads[row[0]]) for row in rows]

    def finish(self, held: Sequence[Held]) -> None:
        now = _microseconds()
        keep = now + int(KEEP * 1_000_000)
        self._cursor.execute("BEGIN IMMEDIATE")
        self._cursor.executemany(_FINISH_JOB, [(now, keep, now, row[0], row[1]) for row in held])
        self._cursor.executemany(_FINISH_BODY, [(RESULT, row[0]) for row in held])
        self._cursor.execute("COMMIT")

    def completed(self) -> int:
        query = "SELECT COUNT(*) FROM holdfast_jobs WHERE status = 'completed'"
        count: int = self._cursor.execute(query).fetchone()[0]
        return count

    def close(self) -> None:
        self._connection.close()


def _microseconds() -> int:
    return time.time_ns() // 1000
