"""`app.jobs.logs(...)`: what the runs of a job wrote with `ctx.log`."""

import re
from uuid import UUID

from holdfast.core.ids import parse_id
from holdfast.engine.steps import Step, Steps
from holdfast.errors import InvalidInput
from holdfast.jobs import log_lines
from holdfast.jobs.job import LogLine
from holdfast.jobs.waiting import Results

LINES = 1000
MOST = 10_000
_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})")


class JobLogs(Results):
    """The part of `app.jobs` that reads logs."""

    def logs(
        self,
        id: str | UUID,
        *,
        after: str | None = None,
        limit: int = LINES,
        newest: bool = False,
    ) -> list[LogLine]:
        """The lines of its runs, in order. `after`: behind this one (its `cursor`), which may be the
        last there was: new lines come as long as it runs. `newest`: the last `limit` lines instead of
        the first. Lines of its last 20 runs are kept."""
        return self._runner.go(self._logs(id, after, limit, newest))

    async def alogs(
        self,
        id: str | UUID,
        *,
        after: str | None = None,
        limit: int = LINES,
        newest: bool = False,
    ) -> list[LogLine]:
        return await self._runner.ago(self._logs(id, after, limit, newest))

    def _logs(
        self, id: str | UUID, after: str | None, limit: int, newest: bool
    ) -> Steps[list[LogLine]]:
        known, place = parse_id(id), None if after is None else parse_cursor(after)
        if type(limit) is not int or not 1 <= limit <= MOST:
            raise InvalidInput(f"limit={limit!r}: give a number of lines from 1 to {MOST}")
        dialect = self._runner.engine.dialect
        found: list[LogLine] = yield Step(
            lambda: log_lines.logs(dialect, known, place, limit, newest), write=False
        )
        return found


def parse_cursor(text: str) -> log_lines.Place:
    """From 3.17: line 17 of the run with claim 3."""
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"after={text!r} is no place in a log: give the cursor of a line, as '3.17'"
        )
    return int(match[1]), int(match[2])
