"""The verbs of one recurring job, `task.using(key=...)`: those of `app.schedules`, with its names
filled in. Each gives the row as it stands then."""

from abc import abstractmethod
from datetime import datetime
from typing import Any, Protocol

from holdfast.core.duration import Duration
from holdfast.jobs.job import Job


class Verbs(Protocol):
    """`app.schedules`: found by name, since applications are above tasks."""

    def __getattr__(self, verb: str) -> Any: ...


class Recurring:
    __slots__ = ()

    @abstractmethod
    def _row(self, verb: str) -> tuple[Verbs, str, str, Any]:
        """The verbs, the task's name, the key, and the caller's transaction."""

    def enable(self) -> Job:
        """Let it run again; an overdue one does so at once."""
        return self._do("enable")

    async def aenable(self) -> Job:
        return await self._ado("aenable")

    def disable(self) -> Job:
        """Keep it from running; its next run is remembered. A run that has begun ends as it would."""
        return self._do("disable")

    async def adisable(self) -> Job:
        return await self._ado("adisable")

    def run_now(self) -> Job:
        """A run at once, also of a disabled one; if it runs already, again after that."""
        return self._do("run_now")

    async def arun_now(self) -> Job:
        return await self._ado("arun_now")

    def reschedule(self, *, at: datetime | None = None, after: Duration | None = None) -> Job:
        """Choose its next run."""
        return self._do("reschedule", at=at, after=after)

    async def areschedule(
        self, *, at: datetime | None = None, after: Duration | None = None
    ) -> Job:
        return await self._ado("areschedule", at=at, after=after)

    def delete(self) -> Job:
        """The only end of it; the row as it was."""
        return self._do("delete")

    async def adelete(self) -> Job:
        return await self._ado("adelete")

    def sync(self, *, enabled: Any) -> Job:
        """Enabled exactly when `enabled` holds: a function, or a pair of SQL and its parameters, looked
        at after the row is locked."""
        return self._do("sync", enabled=enabled)

    async def async_(self, *, enabled: Any) -> Job:
        """The same; with a `tx`, the function may be asynchronous."""
        return await self._ado("async_", enabled=enabled)

    def _do(self, verb: str, **words: Any) -> Job:
        verbs, task, key, tx = self._row(verb)
        job: Job = getattr(verbs, verb)(task, key, tx=tx, **words)
        return job

    async def _ado(self, verb: str, **words: Any) -> Job:
        verbs, task, key, tx = self._row(verb)
        job: Job = await getattr(verbs, verb)(task, key, tx=tx, **words)
        return job
