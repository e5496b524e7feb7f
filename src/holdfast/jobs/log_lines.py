"""Scripts that write and read the lines of job logs."""

import re
from collections.abc import Sequence

from holdfast.engine.dialect import Dialect
from holdfast.engine.script import Run, Script
from holdfast.errors import InvalidInput
from holdfast.jobs.job import LogLine
from holdfast.jobs.rows import decoder

RUNS = 20  # the last runs of a job, whose lines are kept: a recurring job never ends

_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})")

_line = decoder(LogLine, "job_id, claim_no, attempt, line_no, at, level, text")

Place = tuple[int, int]  #: the number of a claim, and of a line in it


def parse_cursor(text: str) -> Place:
    """Return the place that a cursor names: "3.17" is line 17 of the run with claim 3."""
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"after={text!r} is no place in a log: give the cursor of a line, as '3.17'"
        )
    return int(match[1]), int(match[2])


def log(dialect: Dialect, lines: Sequence[LogLine]) -> Script[None]:
    """Store lines of job logs, and delete the lines of all but the last RUNS runs of each job. Lines
    are sorted by job, so that two writers lock the jobs in the same order and cannot deadlock."""
    rows = [
        {
            "id": line.job_id,
            "claim_no": line.claim_no,
            "attempt": line.attempt,
            "line_no": line.line_no,
            "at": dialect.time(line.at),
            "level": line.level,
            "text": line.text,
        }
        for line in sorted(lines, key=lambda line: (line.job_id, line.claim_no, line.line_no))
    ]
    yield Run("insert_logs", {}, rows)
    newest = {line["id"]: line["claim_no"] for line in rows}
    old = [{"id": id, "claim_no": last - RUNS} for id, last in newest.items() if last > RUNS]
    if old:
        yield Run("prune_logs", {}, old)


def logs(
    dialect: Dialect, id: str, after: Place | None, limit: int, newest: bool
) -> Script[list[LogLine]]:
    claim_no, line_no = after or (0, 0)
    params = {"id": id, "claim_no": claim_no, "line_no": line_no, "limit": limit}
    which = "newest" if newest else "oldest"
    rows = (yield Run("logs", params, options=frozenset({which}))).rows
    lines = [_line(dialect.moment, row) for row in rows]
    return lines[::-1] if newest else lines
