"""`Holdfast`: the application object, with a database and a registry of tasks."""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, overload

from holdfast.core import validation
from holdfast.core.clock import Clock
from holdfast.core.codec import encode_json
from holdfast.core.duration import Duration
from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.engine.open import open_engine
from holdfast.engine.script import Script
from holdfast.engine.steps import Runner
from holdfast.errors import InvalidArguments, InvalidInput, UnknownTask
from holdfast.events.event import Event, Listener, Listeners
from holdfast.events.feed import AsyncEvents, Events, feed_opener, patience
from holdfast.jobs import commands
from holdfast.jobs.backoff import BackoffLike
from holdfast.jobs.client import Jobs
from holdfast.jobs.job import EventKind, Job, NewJob, Status
from holdfast.jobs.queues import Queues
from holdfast.limits.client import Limits
from holdfast.limits.limit import Limit, check_shared
from holdfast.monitoring.health import Health, HealthLimits, read_health
from holdfast.monitoring.snapshot import Snapshot
from holdfast.monitoring.stats import Stats, read_stats
from holdfast.schedules.client import Schedules
from holdfast.schedules.next_run import Missed
from holdfast.settings import Settings, place_of, thresholds
from holdfast.tasks.context import Context, detached
from holdfast.tasks.middleware import Middleware, wrap_enqueue
from holdfast.tasks.options import UNSET, Options, Unset
from holdfast.tasks.registration import Decorator, Errors, check_options, make_task
from holdfast.tasks.task import Hook, Task, Then
from holdfast.tasks.using import Call, Using
from holdfast.workflows.builder import Workflow
from holdfast.workflows.client import Workflows

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_URL = "sqlite:///holdfast.db"


class Holdfast:
    """Durable jobs in one database.

    >>> app = Holdfast("sqlite:///jobs.db")   # default: $HOLDFAST_URL, then sqlite:///holdfast.db

    The database is opened at the first use. One object serves all threads and event loops of a process.
    After a fork, an object that has opened its database cannot be used in the child: make a new one.
    """

    def __init__(
        self,
        url: str | None = None,  #: the database: `sqlite:///file`, `postgresql://...`
        *,
        schema: str = "holdfast",  #: PostgreSQL: where the tables are
        auto_migrate: bool | None = None,  #: migrate at the first use; None: on SQLite only
        pooler: bool | None = None,  #: PostgreSQL: behind pgbouncer or the like; None: find out
        database_timeout: Duration | None = None,  #: timeout of one call to the database; 30 s
        max_attempts: int | None = None,  #: the most runs of a failing job; 3
        timeout: Duration | Unset | None = UNSET,  #: timeout of one run; 5 minutes; None: no limit
        backoff: BackoffLike | None = None,  #: the delay before a retry; 5 s, doubled each time
        retention: Mapping[str, Duration] | None = None,  #: how long finished jobs stay, by status
        poll_interval: Duration | None = None,  #: between two looks for work without a hint; 1 s
        heartbeat: Duration | None = None,  #: of workers; 5 s; dead after three missed ones
        workdir: str | Path | None = None,  #: where `ctx.workdir` folders are made
        aging: Duration | None = None,  #: a wait that counts as one step of priority
        health: Mapping[str, Any] | None = None,  #: thresholds of `app.health()`
        app_version: str | None = None,  #: of your code, shown with workers
        archive: str | Path | None = None,  #: a folder for finished jobs before they are deleted
        unreadable_for: Duration | None = None,  #: then a job fails that no worker can read; 1 h
        middleware: Sequence[Middleware] = (),  #: around every enqueue and run
        clock: Clock | None = None,  #: for tests: `FakeClock()`
    ) -> None:
        self.url = url or os.environ.get("HOLDFAST_URL") or DEFAULT_URL
        self.settings = Settings(
            max_attempts=max_attempts,
            timeout=timeout,
            backoff=backoff,
            retention=retention,
            poll_interval=poll_interval,
            heartbeat=heartbeat,
            workdir=workdir,
            aging=aging,
            health=health,
            app_version=app_version,
            database_timeout=database_timeout,
            archive=archive,
            unreadable_for=unreadable_for,
            database=place_of(self.url, schema),
        )
        self.engine: Engine = open_engine(
            self.url,
            schema=schema,
            pooler=pooler,
            auto_migrate=auto_migrate,
            clock=clock,
            timeout=self.settings.database_timeout,
        )
        self.middleware = tuple(middleware)
        self._make_parts()

    def _make_parts(self) -> None:
        self.tasks: dict[str, Task[Any, Any]] = {}  #: by name
        self.listeners = Listeners()
        self.runner = Runner(self.engine)
        keep, aging = self._keep_cancelled, self.settings.aging
        self.jobs = Jobs(
            self.runner, keep=keep, aging=aging, tasks=self.tasks
        )  #: read, cancel, retry, delete
        self.queues = Queues(self.runner)  #: pause, limit, purge
        self.limits = Limits(self.runner)  #: read limits, change their numbers
        self.schedules = Schedules(self.runner)  #: recurring jobs
        self.workflows = Workflows(self.runner, self.settings.retention, self.middleware)

    @property
    def clock(self) -> Clock:
        """The clock by which this application tells the time."""
        return self.engine.clock

    # tasks

    @overload
    def task(self, handler: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...

    @overload
    def task(self, handler: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,  #: instead of the function's
        queue: str = "default",  #: the queue of its jobs
        priority: int = 0,  #: a higher number runs first
        max_attempts: int | None = None,  #: the most runs of a job; None: as the application
        timeout: Duration | Unset | None = UNSET,  #: of one run; None: no limit; else as the app
        backoff: BackoffLike | None = None,  #: the delay before a retry; None: as the application
        retry_on: Errors | None = None,  #: retry only these
        discard_on: Errors | None = None,  #: do not retry these
        on_success: Hook | None = None,  #: called with a `RunEnd`
        on_failure: Hook | None = None,  #: called with a `RunEnd` after each failed run
        then: Task[Any, Any] | Using[Any] | Then | None = None,  #: the next task
        on_prune: Hook | None = None,  #: called with a finished job before it is deleted
        on_lost: Literal["strict", "relaxed"] = "strict",  #: stop runs without a database?
        process: bool = False,  #: run it in a process of its own
        retention: Mapping[str, Duration] | None = None,  #: how long jobs stay, by status
        concurrency: int | Limit | Sequence[Limit] | None = None,  #: how many at once
        rate: str | Limit | None = None,  #: how many may start: '100/m'
        expires: Duration | None = None,  #: cancel a job that has not begun by then
        every: Duration | None = None,  #: run it at this interval
        cron: str | None = None,  #: run it at these moments: '0 3 * * *'
        timezone: str | None = None,  #: of `cron`; UTC
        missed: Missed = "once",  #: what to do about moments when no worker ran
        jitter: Duration = 0,  #: the most that is added to each moment, at random
    ) -> Decorator: ...

    def task(self, handler: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
        """Register a function: `@app.task` or `@app.task(queue="media", timeout="10m")`."""
        if handler is None:
            return lambda function: self._register(function, name, options)
        return self._register(handler, name, options)

    def _register(
        self, handler: Callable[..., Any], name: str | None, options: Mapping[str, Any]
    ) -> Task[Any, Any]:
        check_options(options, Holdfast.task)
        task = make_task(handler, name, options, self.settings, self)
        check_shared(task.rule, [other.rule for other in self.tasks.values()])
        if task.name in self.tasks:
            raise InvalidInput(
                f"a task named {task.name!r} is registered already: give one of them another name="
            )
        self.tasks[task.name] = task
        return task

    def _keep_cancelled(self, type: str) -> float:
        task = self.tasks.get(type)
        kept = self.settings.retention if task is None else task.policy.keep
        return kept[Status.CANCELLED]

    def detached(self, task: Task[Any, Any]) -> Context:
        return detached(task, self.clock.now())

    # enqueueing

    def enqueue(self, type: str, payload: Mapping[str, Any] | None = None, **options: Any) -> Job:
        """Add a job by the name of its task. The options are those of `task.using`."""
        settings = Options().changed(options)
        return self.insert([self._named(type, payload, settings)], settings)[0]

    async def aenqueue(
        self, type: str, payload: Mapping[str, Any] | None = None, **options: Any
    ) -> Job:
        settings = Options().changed(options)
        return (await self.ainsert([self._named(type, payload, settings)], settings))[0]

    def _named(self, type: str, payload: Mapping[str, Any] | None, options: Options) -> NewJob:
        options.check_enqueue()
        payload = {} if payload is None else payload
        if not isinstance(payload, Mapping):
            raise InvalidArguments(
                f"the payload is {payload!r}: give a mapping of the task's arguments by name"
            )
        task = self.tasks.get(validation.name(type, "type"))
        if task is not None:
            return options.new_job(
                type, task.arguments.encode((), payload), task.defaults, new_id()
            )
        text = encode_json(dict(payload), f"the arguments of task {type!r}")
        defaults = Options(max_attempts=self.settings.max_attempts, aging=self.settings.aging)
        return options.new_job(type, text, defaults, new_id())

    def insert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]:
        """Insert the jobs of tasks. With `options.tx`, they exist if that transaction commits."""
        if not jobs:
            return []
        return wrap_enqueue(self.middleware, partial(self._insert, options))(jobs)

    def _insert(self, options: Options, jobs: Sequence[NewJob]) -> list[Job]:
        if options.tx is not None:
            return self.engine.adopt(options.tx).run(self._inserting(jobs, options))
        made = self.engine.insert(jobs, notify=options.notify)
        if self.listeners.wants(EventKind.ENQUEUED):
            for new, job in zip(jobs, made, strict=True):
                if not new.repeats(job):
                    self.listeners.tell(Event(kind=EventKind.ENQUEUED, job=job))
        return made

    async def ainsert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]:
        if options.tx is None or not jobs:
            return await self.runner.hop(lambda: self.insert(jobs, options))
        transaction = await self.runner.adopt(options.tx)
        return await transaction.arun(self._inserting(jobs, options))

    def _inserting(self, jobs: Sequence[NewJob], options: Options) -> Script[list[Job]]:
        queues = {job.queue for job in jobs} if options.notify else ()
        return commands.insert(self.engine.dialect, jobs, hint=queues)

    def find_task(self, name: str) -> Task[Any, Any]:
        """Return the task with this name. Raises UnknownTask."""
        try:
            return self.tasks[name]
        except KeyError:
            raise UnknownTask(
                f"no task named {name!r} is registered here; registered: "
                f"{', '.join(sorted(self.tasks)) or 'none'}. Import the module that defines it"
            ) from None

    # workflows

    def workflow(self, name: str = "workflow", *, tx: Any = None, notify: bool = True) -> Workflow:
        """Build a workflow: `with app.workflow() as flow: ...`. Its jobs, which may wait for each
        other, are inserted at the end of the block, in one transaction."""
        return Workflow(self.workflows, name, tx=tx, notify=notify)

    def chain(self, *calls: Call, name: str = "chain", tx: Any = None) -> Workflow:
        """Enqueue jobs that run one after the other: `app.chain(scan.call(...), tile.call(...))`."""
        with self.workflow(name, tx=tx) as flow:
            return flow.chain(calls)

    async def achain(self, *calls: Call, name: str = "chain", tx: Any = None) -> Workflow:
        async with self.workflow(name, tx=tx) as flow:
            return flow.chain(calls)

    def batch(
        self,
        calls: Sequence[Call],
        *,
        name: str = "batch",
        on_completed: Call | None = None,
        on_failed: Call | None = None,
        on_finished: Call | None = None,
        tx: Any = None,
    ) -> Workflow:
        """Enqueue jobs that run at the same time, and the jobs that run when all of these have
        completed, when one has failed, and when all are finished."""
        with self.workflow(name, tx=tx) as flow:
            return flow.batch(calls, on_completed, on_failed, on_finished)

    async def abatch(
        self,
        calls: Sequence[Call],
        *,
        name: str = "batch",
        on_completed: Call | None = None,
        on_failed: Call | None = None,
        on_finished: Call | None = None,
        tx: Any = None,
    ) -> Workflow:
        async with self.workflow(name, tx=tx) as flow:
            return flow.batch(calls, on_completed, on_failed, on_finished)

    # running and observing

    def worker(self, **options: Any) -> "Worker":
        """Return a worker that runs in this process: `with app.worker(): ...`, `async with ...`. The
        options are queues, concurrency and grace."""
        from holdfast.worker.worker import Worker

        return Worker(self, **options)

    def lifespan(self, **options: Any) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """Return a lifespan for ASGI: `FastAPI(lifespan=app.lifespan())` runs a worker inside the
        server, with `async def` handlers on its event loop. The options are those of `worker`."""

        @asynccontextmanager
        async def lifespan(server: Any) -> AsyncIterator[None]:
            async with self.worker(**options):
                yield

        return lifespan

    def on(self, *kinds: str) -> Callable[[Listener], Listener]:
        """Decorate a listener to events of this process: `@app.on("failed")`; no kind: all events."""

        def add(listener: Listener) -> Listener:
            self.listeners.add(kinds, listener)
            return listener

        return add

    def events(
        self,
        after: int | None = None,
        *,
        name: str | None = None,
        kinds: str | Iterable[str] = (),
        timeout: Duration | None = None,
        **filter: Any,
    ) -> Events:
        """Follow the events of jobs in all processes: `with app.events() as events: for ...`. Reading
        starts now, or `after` the position of the last event seen, and ends when no event comes for
        `timeout`. The filters are `job`, `type`, `queue` and `entity`. With a `name`, a reader can
        resume for 10 minutes. Raises EventsGone if events after the position are deleted or were never
        written."""
        return Events(feed_opener(self.engine, after, name, kinds, filter)(), patience(timeout))

    def aevents(
        self,
        after: int | None = None,
        *,
        name: str | None = None,
        kinds: str | Iterable[str] = (),
        timeout: Duration | None = None,
        **filter: Any,
    ) -> AsyncEvents:
        """The same for `async for`; reading starts at the first step, or at `async with`."""
        opener = feed_opener(self.engine, after, name, kinds, filter)
        return AsyncEvents(opener, patience(timeout))

    # monitoring and the database

    def stats(self, *, window: Duration = "1h") -> Stats:
        """Return the numbers of jobs by status and queue, each counted up to a cap, and of the runs of
        the last hour (`window`, at most a day) by task, queue and minute. A large table costs no
        more."""
        return read_stats(Snapshot(self.engine), window, self.tasks)

    async def astats(self, *, window: Duration = "1h") -> Stats:
        return await self.runner.hop(lambda: self.stats(window=window))

    def health(self, **limits: Unpack[HealthLimits]) -> Health:
        """Check whether jobs are being run: `health.ok`, `health.problems` with a remedy for each, and
        `health.checks`. Thresholds that are given replace those of `Holdfast(health=...)`. A database
        that is out of reach is a problem, too."""
        return read_health(Snapshot(self.engine), thresholds(limits, self.settings.health))

    async def ahealth(self, **limits: Unpack[HealthLimits]) -> Health:
        return await self.runner.hop(lambda: self.health(**limits))

    def migrate(self) -> list[str]:
        """Bring the tables up to this release; return the names of the migrations applied."""
        return self.engine.migrate()

    def close(self) -> None:
        """Close connections and stop threads. Idempotent."""
        self.runner.close()

    def __enter__(self) -> "Holdfast":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Holdfast {len(self.tasks)} tasks>"  # never the URL: it may hold a password
