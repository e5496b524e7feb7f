"""`task.using(...)`: the class `Using`, a task with options, which can be enqueued, scheduled, or
called later; and `BaseTask`, which `Using` and `Task` share."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, Protocol

from holdfast.core import validation
from holdfast.core.clock import Clock
from holdfast.core.duration import Duration
from holdfast.core.ids import new_id
from holdfast.errors import InvalidInput
from holdfast.jobs.job import Job, NewJob
from holdfast.schedules.client import Schedules
from holdfast.schedules.next_run import first_run, spread, to_json
from holdfast.schedules.scripts import Condition
from holdfast.tasks.options import Options

if TYPE_CHECKING:
    from holdfast.tasks.task import Task

P = ParamSpec("P")


class Host(Protocol):
    """The part of an application that its tasks use."""

    schedules: Schedules

    @property
    def clock(self) -> Clock: ...

    def insert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]: ...

    async def ainsert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]: ...

    def detached(self, task: "Task[Any, Any]") -> Any:
        """Return a Context for a task that is called as a plain function."""


class BaseTask(Generic[P]):
    """The base class of a task and a task with options: calls of either become jobs."""

    __slots__ = ("_pattern", "host", "options", "task")

    def __init__(self, task: "Task[P, Any]", host: Host, options: Options) -> None:
        self.task = task
        self.host = host
        self._pattern: NewJob | None = None
        self.options = options

    def using(self, **options: Any) -> "Using[P]":
        """Return this task with options: queue, priority, delay, run_at, key, on_conflict,
        idempotency_key, entity, max_attempts, timeout, expires, tx, notify; in a workflow after,
        on_parent_failure, node; for `schedule()` every, cron, timezone, start, missed, jitter,
        backoff. Those of a second `using` replace those of the first."""
        return Using(self.task, self.host, self.options.changed(options))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Add a job and return it. If an unfinished job has this key, or any job has this idempotency
        key, return that job instead, with `created=False`."""
        return self.host.insert([self.new_job(args, kwargs)], self.options)[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        return (await self.host.ainsert([self.new_job(args, kwargs)], self.options))[0]

    def enqueue_many(
        self, calls: Iterable[Mapping[str, Any]], *, idempotency_keys: Iterable[str] | None = None
    ) -> list[Job]:
        """Add a job for each mapping of arguments: all of them, or none. `idempotency_keys`: one for
        each job; a job that exists already is returned with `created=False`."""
        return self.host.insert(self._jobs(calls, idempotency_keys), self.options)

    async def aenqueue_many(
        self, calls: Iterable[Mapping[str, Any]], *, idempotency_keys: Iterable[str] | None = None
    ) -> list[Job]:
        return await self.host.ainsert(self._jobs(calls, idempotency_keys), self.options)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> "Call":
        """Return this call, to be made later: for `then=`, `app.chain` and `app.batch`."""
        self.task.arguments.encode(args, kwargs)  # raises for arguments that do not fit
        return Call(self, args, kwargs)

    def new_job(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], next_task_of: Job | None = None
    ) -> NewJob:
        """Return the job that this call would add. `next_task_of`: priority and entity are those of
        that job, unless they are given."""
        payload = self.task.arguments.encode(args, kwargs)
        if self._pattern is None:  # all its jobs have the same options, which are checked once
            self._pattern = self._checked()
        job = self._pattern.copy(id=new_id(), payload=payload)
        if next_task_of is None:
            return job
        if self.options.priority is None and not self.task.defaults.priority:
            job = dataclasses.replace(job, priority=next_task_of.priority)
        if job.entity_type is None and next_task_of.entity is not None:
            kind, id = validation.entity(next_task_of.entity)
            job = dataclasses.replace(job, entity_type=kind, entity_id=id)
        return job

    def follow(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], job: Job) -> NewJob:
        """Return the job that a call would add together with the completion of `job`."""
        if self.options.tx is not None:
            raise InvalidInput(
                f"task {self.task.name!r}: tx= is not for what is added with a job's completion; use "
                "task.using(tx=...).enqueue(...)"
            )
        if self.options.on_conflict == "raise":
            raise InvalidInput(
                f"task {self.task.name!r}: on_conflict='raise' could undo the completion of the job "
                "that adds it"
            )
        return self.new_job(args, kwargs, job)

    def _checked(self) -> NewJob:
        self.options.check_enqueue()
        return self.options.new_job(self.task.name, "", self.task.defaults, "")

    def _jobs(
        self, calls: Iterable[Mapping[str, Any]], idempotency_keys: Iterable[str] | None
    ) -> list[NewJob]:
        if self.options.key is not None:
            raise InvalidInput(
                "key= and enqueue_many: one key cannot serve many jobs; enqueue each"
            )
        if self.options.idempotency_key is not None:
            raise InvalidInput(
                "idempotency_key= and enqueue_many: one cannot serve many jobs; give one for each: "
                "enqueue_many(calls, idempotency_keys=[...])"
            )
        jobs = []
        for number, call in enumerate(calls):
            if not isinstance(call, Mapping):
                raise InvalidInput(
                    f"enqueue_many: element {number} is {call!r}: give a mapping of arguments"
                )
            jobs.append(self.new_job((), call))
        return jobs if idempotency_keys is None else _identified(jobs, idempotency_keys)


class Using(BaseTask[P]):
    """A task with options for its jobs: `task.using(priority=5).enqueue(...)`. With `key=`, it names a
    recurring job, too."""

    __slots__ = ()

    def schedule(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Make the recurring job of this key and return it. If it exists, enable it and give it these
        arguments and this schedule; its next run stays."""
        return self.host.schedules.put(self.recurring(args, kwargs), tx=self.options.tx)

    async def aschedule(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        return await self.host.schedules.aput(self.recurring(args, kwargs), tx=self.options.tx)

    def enable(self) -> Job:
        """Enable the recurring job; if its next run is overdue, it runs now."""
        return self.host.schedules.enable(**self._row("enable"))

    async def aenable(self) -> Job:
        return await self.host.schedules.aenable(**self._row("enable"))

    def disable(self) -> Job:
        """Disable the recurring job; the time of its next run is kept. A run that has begun goes on."""
        return self.host.schedules.disable(**self._row("disable"))

    async def adisable(self) -> Job:
        return await self.host.schedules.adisable(**self._row("disable"))

    def run_now(self) -> Job:
        """Run the recurring job now, also if it is disabled; if it is running, once more after that."""
        return self.host.schedules.run_now(**self._row("run_now"))

    async def arun_now(self) -> Job:
        return await self.host.schedules.arun_now(**self._row("run_now"))

    def reschedule(self, *, at: datetime | None = None, after: Duration | None = None) -> Job:
        """Choose the next run: a moment, or a time from now."""
        return self.host.schedules.reschedule(**self._row("reschedule"), at=at, after=after)

    async def areschedule(
        self, *, at: datetime | None = None, after: Duration | None = None
    ) -> Job:
        row = self._row("reschedule")
        return await self.host.schedules.areschedule(**row, at=at, after=after)

    def delete(self) -> Job:
        """Delete the recurring job, and return it as it was. Nothing else ends it."""
        return self.host.schedules.delete(**self._row("delete"))

    async def adelete(self) -> Job:
        return await self.host.schedules.adelete(**self._row("delete"))

    def sync(self, *, enabled: Condition) -> Job:
        """Enable the recurring job if `enabled` holds, else disable it. `enabled` is a function, or a
        pair of SQL and its parameters; it is evaluated after the row is locked."""
        return self.host.schedules.sync(**self._row("sync"), enabled=enabled)

    async def async_(self, *, enabled: Condition) -> Job:
        """The same as `sync`; with a `tx`, the function may be asynchronous."""
        return await self.host.schedules.async_(**self._row("async_"), enabled=enabled)

    def _row(self, method: str) -> dict[str, Any]:
        """Return the task and the key that name the recurring job, and the transaction."""
        if self.options.key is None:
            raise InvalidInput(f"{method}() needs a key=: it names the recurring job of this task")
        return {"type": self.task.name, "key": self.options.key, "tx": self.options.tx}

    def recurring(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        """Return the recurring job that `schedule` would make."""
        options = self.options
        self._row("schedule")
        if options.delay is not None or options.run_at is not None or options.expires is not None:
            raise InvalidInput(
                "schedule() takes start= for the first run, no delay, run_at, expires"
            )
        if options.idempotency_key is not None:
            raise InvalidInput(
                "schedule() takes no idempotency_key=: key= names the one recurring job, and calling "
                "schedule() again changes it"
            )
        own = self.task.schedule
        changed = dataclasses.replace(options, start=None).recurs
        plan = own if own is not None and not changed else options.schedule()
        start = None if options.start is None else validation.moment(options.start, "start")
        first = None
        if start is not None or plan.cron is not None:
            first = first_run(plan, self.host.clock.now(), start)
            first = first if start is not None else spread(plan, first).run_at
        payload = self.task.arguments.encode(args, kwargs)
        pattern = options.new_job(self.task.name, payload, self.task.defaults, new_id())
        return dataclasses.replace(
            pattern, schedule=to_json(plan), run_at=first, on_conflict="existing", expires=None
        )


class Call(NamedTuple):
    """A task, or a task with options, and arguments that fit it."""

    task: BaseTask[Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def follow(self, job: Job) -> NewJob:
        return self.task.follow(self.args, self.kwargs, job)


def _identified(jobs: list[NewJob], keys: Iterable[str]) -> list[NewJob]:
    """Return the jobs, each with its idempotency key."""
    given = [] if isinstance(keys, str) else list(keys)
    if len(given) != len(jobs):
        raise InvalidInput(
            f"idempotency_keys has {len(given)} elements for {len(jobs)} jobs: give one string for each"
        )
    return [
        dataclasses.replace(job, idempotency_key=validation.key(key, f"idempotency_keys[{number}]"))
        for number, (job, key) in enumerate(zip(jobs, given, strict=True))
    ]
