"""The limit on PostgreSQL: psycopg on one connection, prepared statements that commit themselves."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import psycopg

from bench.job_store import KEEP, QUEUE, RESULT, SMALL, TYPE, WORKER, arguments
from holdfast.core.ids import new_id

# Statements prepared on an empty table must not keep a plan that reads it whole, nor one that
# joins by hashing it.
_OPTIONS = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"

_COLUMNS = (
    "(id, type, queue, status, priority, rank, max_attempts,"
    " created_at, updated_at, run_at, payload)"
)
_INSERT = f"""
INSERT INTO holdfast.jobs {_COLUMNS}
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_COPY = f"COPY holdfast.jobs {_COLUMNS} FROM STDIN"
_CLAIM = """
UPDATE holdfast.jobs
   SET status = 'running', worker_id = %s, claim_no = claim_no + 1, attempts = attempts + 1,
       started_at = now(), updated_at = now()
 WHERE id = ANY(ARRAY(SELECT id
                        FROM holdfast.jobs
                       WHERE status = 'pending' AND queue = %s AND type = %s
                       ORDER BY rank, run_at, id
                       LIMIT %s
                         FOR UPDATE SKIP LOCKED))
RETURNING id::text, claim_no, attempts, payload::text
"""
# Without `status = 'running'`, which a planner could take for a reason to walk the index of running
# rows: the claim's number says as much.
_FINISH = """
UPDATE holdfast.jobs
   SET status = 'completed', completed_at = now(), keep_until = now() + %s::interval,
       updated_at = now(), finish_no = jobs.claim_no, result = new.result::json
  FROM unnest(%s::uuid[], %s::bigint[], %s::text[]) AS new (id, claim_no, result)
 WHERE jobs.id = new.id AND jobs.claim_no = new.claim_no
"""

Item = tuple[object, ...]
Held = tuple[str, int, int, str]


class RawPostgres:
    """Nothing but statements: no checks, no objects, no transaction around a single one."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(
            url, autocommit=True, prepare_threshold=0, options=_OPTIONS
        )
        self._cursor = self._connection.cursor()
        for setting in ("fsync", "synchronous_commit"):
            if self._cursor.execute(f"SHOW {setting}".encode()).fetchone() != ("on",):
                raise RuntimeError(f"{setting} is off on this server: its figures would not count")

    def make(self, count: int, size: int = SMALL) -> Sequence[Item]:
        now = datetime.now(UTC)
        payload = json.dumps(arguments(0, size))
        return [
            (new_id(), TYPE, QUEUE, "pending", 0, 0, 3, now, now, now, payload)
            for _ in range(count)
        ]

    def insert_one(self, item: Item) -> None:
        self._cursor.execute(_INSERT, item)

    def insert_many(self, items: Sequence[Item]) -> None:
        with self._cursor.copy(_COPY) as copy:
            for item in items:
                copy.write_row(item)

    def claim(self, limit: int) -> Sequence[Held]:
        self._cursor.execute(_CLAIM, (WORKER, QUEUE, TYPE, limit))
        return self._cursor.fetchall()

    def finish(self, held: Sequence[Held]) -> None:
        ids, numbers = [row[0] for row in held], [row[1] for row in held]
        results = [RESULT] * len(held)
        self._cursor.execute(_FINISH, (f"{KEEP} seconds", ids, numbers, results))

    def completed(self) -> int:
        query = "SELECT count(*) FROM holdfast.jobs WHERE status = 'completed'"
        row = self._cursor.execute(query).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        self._connection.close()
