"""Tasks: registered functions, and how a call of one becomes a job.

A task knows its arguments and its defaults. It does not know the database: its host inserts.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

from holdfast.core import validation
from holdfast.core.clock import Clock
from holdfast.core.codec import Arguments, Result
from holdfast.core.ids import new_id
from holdfast.errors import InvalidInput
from holdfast.jobs.job import Job, NewJob
from holdfast.jobs.outcome import Policy
from holdfast.limits.limit import Limit, Rule, make_rule
from holdfast.schedules.handle import Recurring
from holdfast.schedules.next_run import Schedule, first_run, spread, to_json
from holdfast.tasks.options import RECURRING, Options

P = ParamSpec("P")
R = TypeVar("R")


class Host(Protocol):
    """What a task needs of its application."""

    schedules: Any

    @property
    def clock(self) -> Clock: ...

    def insert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]: ...

    async def ainsert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]: ...

    def detached(self, task: "Task[Any, Any]") -> Any:
        """A Context that goes nowhere, for a task that is called as a plain function."""


Kind = Literal["async", "thread", "process"]
Hook = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How the jobs of a task are run, and what follows."""

    policy: Policy
    kind: Kind
    takes_context: bool = False
    timeout: float | None = 300.0  #: of one attempt, in seconds; None: no limit
    strict: bool = True  #: stop it when the database cannot be reached, before others may take it
    on_success: Hook | None = None
    on_failure: Hook | None = None
    then: Any = None  #: a task, one with options, or a function of the job and its result
    on_prune: Hook | None = None  #: called with the job before its row goes


class Using(Recurring, Generic[P]):
    """A task with options for the jobs to come: `task.using(priority=5).enqueue(...)`."""

    __slots__ = ("_host", "_pattern", "options", "task")

    def __init__(self, task: "Task[P, Any]", host: Host, options: Options) -> None:
        self.task = task
        self._host = host
        self._pattern: NewJob | None = None
        self.options = options

    def using(self, **options: Any) -> "Using[P]":
        """The same with further options; the later ones win."""
        return Using(self.task, self._host, _changed(self.options, options))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Add a job; `job.created` is False when a live job of this key, or one with this idempotency
        key, was found instead."""
        return self._host.insert([self.new_job(args, kwargs)], self.options)[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        return (await self._host.ainsert([self.new_job(args, kwargs)], self.options))[0]

    def enqueue_many(
        self, calls: Iterable[Mapping[str, Any]], *, idempotency_keys: Iterable[str] | None = None
    ) -> list[Job]:
        """Add a job for each mapping of arguments: all of them, or none. `idempotency_keys`: one for
        each; a job that is there already is returned with `created=False`."""
        return self._host.insert(self._jobs(calls, idempotency_keys), self.options)

    async def aenqueue_many(
        self, calls: Iterable[Mapping[str, Any]], *, idempotency_keys: Iterable[str] | None = None
    ) -> list[Job]:
        return await self._host.ainsert(self._jobs(calls, idempotency_keys), self.options)

    # recurring jobs

    def schedule(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Make the recurring job of this key, or enable the one that is there and give it these
        arguments and this schedule; its next run stays. The row, with its next run."""
        job: Job = self._host.schedules.put(self.recurring(args, kwargs), tx=self.options.tx)
        return job

    async def aschedule(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        new = self.recurring(args, kwargs)
        job: Job = await self._host.schedules.aput(new, tx=self.options.tx)
        return job

    def _row(self, verb: str) -> tuple[Any, str, str, Any]:
        if self.options.key is None:
            raise InvalidInput(f"{verb}() needs a key=: it names the recurring job of this task")
        return self._host.schedules, self.task.name, self.options.key, self.options.tx

    def recurring(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        """The recurring job that `schedule` would make."""
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
            first = first_run(plan, self._host.clock.now(), start)
            first = first if start is not None else spread(plan, first).run_at
        payload = self.task.arguments.encode(args, kwargs)
        pattern = options.new_job(self.task.name, payload, self.task.defaults, new_id())
        return dataclasses.replace(
            pattern, schedule=to_json(plan), run_at=first, on_conflict="existing", expires=None
        )

    def call(self, *args: P.args, **kwargs: P.kwargs) -> "Call":
        """This call, to be made later: for `then=`, `app.chain` and `app.batch`."""
        self.task.arguments.encode(args, kwargs)  # what does not fit is refused here
        return Call(self, args, kwargs)

    def new_job(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], next_task_of: Job | None = None
    ) -> NewJob:
        """The job that this call would add. `heir_of`: priority and entity are those of another job,
        unless they are given."""
        payload = self.task.arguments.encode(args, kwargs)
        if self._pattern is None:  # the options are the same for all its jobs: checked once
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
        """The job that this call would add together with the completion of another."""
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
        if self.options.recurs:
            raise InvalidInput(
                f"{', '.join(RECURRING)} are for schedule(), which makes a recurring job; enqueue() "
                "takes delay= or run_at="
            )
        if self.options.after is not None or self.options.node is not None:
            raise InvalidInput(
                "after= and node= are for jobs of a workflow: 'with app.workflow() as flow: "
                "flow.add(task.using(after=[...]), ...)'"
            )
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


class Call(NamedTuple):
    """A task, or one with options, and arguments that fit."""

    task: Using[Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def follow(self, job: Job) -> NewJob:
        return self.task.follow(self.args, self.kwargs, job)


Then = Callable[[Job, Any], Any]  #: a job and its result: a Call, several, or None


class Task(Generic[P, R]):
    """A registered function. Calling it runs it, here and now; `enqueue` makes a job of the call."""

    def __init__(
        self,
        name: str,
        handler: Callable[..., R],
        *,
        host: Host,
        defaults: Options,
        conduct: Conduct,
        limits: Sequence[Limit] = (),
        schedule: Schedule | None = None,
    ) -> None:
        self.name = validation.name(name, "name")
        self.handler = handler
        self.conduct = conduct
        self.policy = conduct.policy
        self.arguments = Arguments(name, handler, skip=int(conduct.takes_context))
        self.result = Result(name, handler)
        self.defaults = defaults
        defaults.new_job(name, "{}", defaults, new_id())  # defaults that break a rule fail here
        self.host = host
        known = list(self.arguments.signature.parameters)
        self.rule: Rule | None = make_rule(name, limits, known, self.arguments.decode)
        self.schedule = schedule  #: as written at the task
        self._using: Using[P] = Using(self, host, Options())
        self.__doc__ = handler.__doc__
        self.__name__ = getattr(handler, "__name__", name)
        self.__wrapped__ = handler

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.conduct.takes_context:
            return self.handler(self.host.detached(self), *args, **kwargs)
        return self.handler(*args, **kwargs)

    def new_job(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], next_task_of: Job | None = None
    ) -> NewJob:
        """The job that this call would add."""
        return self._using.new_job(args, kwargs, next_task_of)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """This call, to be made later: for `then=`, `app.chain` and `app.batch`."""
        return self._using.call(*args, **kwargs)

    def following(self, job: Job, result: Any) -> list[NewJob]:
        """What `then=` asks for after a run with this result."""
        then = self.conduct.then
        if then is None:
            return []
        if isinstance(then, Task | Using):
            return [_following(self, then, job, result)]
        asked = then(job, result)
        calls = [] if asked is None else [asked] if isinstance(asked, Call) else list(asked)
        for call in calls:
            if not isinstance(call, Call):
                raise InvalidInput(
                    f"then= of task {self.name!r} returned {call!r}: return task.call(...), several "
                    "of them, or None"
                )
        return [call.follow(job) for call in calls]

    def __repr__(self) -> str:
        return f"<Task {self.name}{self.arguments.signature}>"

    def using(self, **options: Any) -> Using[P]:
        """This task with options: queue, priority, delay, run_at, key, on_conflict, idempotency_key,
        entity, max_attempts, timeout, expires, tx, notify; in a workflow after, on_parent_failure,
        node; for `schedule()` every, cron, timezone, start, missed, jitter, backoff."""
        return self._using.using(**options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Add a job that calls this function with these arguments."""
        return self._using.enqueue(*args, **kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        return await self._using.aenqueue(*args, **kwargs)

    def enqueue_many(
        self, calls: Iterable[Mapping[str, Any]], *, idempotency_keys: Iterable[str] | None = None
    ) -> list[Job]:
        """Add a job for each mapping of arguments: all of them, or none. `idempotency_keys`: one for
        each; a job that is there already is returned with `created=False`."""
        return self._using.enqueue_many(calls, idempotency_keys=idempotency_keys)

    async def aenqueue_many(
        self, calls: Iterable[Mapping[str, Any]], *, idempotency_keys: Iterable[str] | None = None
    ) -> list[Job]:
        return await self._using.aenqueue_many(calls, idempotency_keys=idempotency_keys)


def _identified(jobs: list[NewJob], keys: Iterable[str]) -> list[NewJob]:
    """Each job with its own idempotency key."""
    given = [] if isinstance(keys, str) else list(keys)
    if len(given) != len(jobs):
        raise InvalidInput(
            f"idempotency_keys has {len(given)} elements for {len(jobs)} jobs: give one string for each"
        )
    return [
        dataclasses.replace(job, idempotency_key=validation.key(key, f"idempotency_keys[{number}]"))
        for number, (job, key) in enumerate(zip(jobs, given, strict=True))
    ]


def _following(
    task: Task[Any, Any], then: Task[Any, Any] | Using[Any], job: Job, result: Any
) -> NewJob:
    """A task alone: it is given the result, if that is a mapping of arguments, and if there is none the
    arguments of the job itself."""
    arguments = job.payload if result is None else result
    if not isinstance(arguments, Mapping):
        raise InvalidInput(
            f"then= of task {task.name!r}: the result {result!r} is no mapping of arguments for the "
            "next task: return a dict, or give then= a function of the job and the result"
        )
    return (then.using() if isinstance(then, Task) else then).follow((), arguments, job)


def _changed(options: Options, changes: Mapping[str, Any]) -> Options:
    known = {field.name for field in dataclasses.fields(Options)}
    if unknown := set(changes) - known:
        raise InvalidInput(
            f"unknown option {', '.join(sorted(unknown))}: there are {', '.join(sorted(known))}"
        )
    return dataclasses.replace(options, **changes)
