"""Holdfast: the application object. A URL, a registry of tasks, and the verbs."""

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from holdfast import names
from holdfast.aio import Runner
from holdfast.clock import Clock
from holdfast.codec import encode_json
from holdfast.duration import Duration, seconds
from holdfast.engine import Engine, open_engine, verbs
from holdfast.engine.script import Script
from holdfast.errors import InvalidArguments, InvalidInput, UnknownTask
from holdfast.ids import new_id
from holdfast.job import FINISHED, Job, NewJob, Status
from holdfast.jobs import Jobs
from holdfast.queues import Queues, Stats, read_stats
from holdfast.task import UNSET, Options, Task, Unset

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_URL = "sqlite:///holdfast.db"
DEFAULT_RETENTION: Mapping[str, Duration] = {"completed": "7d", "failed": "30d", "cancelled": "7d"}


class Holdfast:
    """Durable jobs in one database.

    >>> app = Holdfast("sqlite:///jobs.db")   # default: $HOLDFAST_URL, then sqlite:///holdfast.db

    Nothing is opened before the first verb. One object serves all threads and event loops of a
    process; after a fork, make a new one.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str = "holdfast",
        auto_migrate: bool | None = None,
        pooler: bool = False,
        max_attempts: int = 3,
        timeout: Duration | None = 300,
        retention: Mapping[str, Duration] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`schema`, `pooler` (transaction pooling, e.g. pgbouncer) and `auto_migrate` concern
        PostgreSQL; SQLite migrates itself at the first use unless `auto_migrate=False`."""
        self.url = url or os.environ.get("HOLDFAST_URL") or DEFAULT_URL
        self.engine: Engine = open_engine(
            self.url, schema=schema, pooler=pooler, auto_migrate=auto_migrate, clock=clock
        )
        self.retention = _retention(retention or {})
        self.tasks: dict[str, Task[Any, Any]] = {}
        self._defaults = Options(max_attempts=max_attempts, timeout=timeout)
        self._runner = Runner(self.engine)
        self.jobs = Jobs(self._runner, self.retention)
        self.queues = Queues(self._runner)

    # tasks

    @overload
    def task(self, handler: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int | None = None,
        timeout: Duration | Unset | None = UNSET,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(self, handler: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
        """Register a function: `@app.task` or `@app.task(queue="media", timeout="10m")`."""
        if handler is None:
            return lambda function: self._register(function, name, options)
        return self._register(handler, name, options)

    def _register(
        self, handler: Callable[P, R], name: str | None, options: Mapping[str, Any]
    ) -> Task[P, R]:
        if not callable(handler):
            raise InvalidInput(f"@app.task was given {handler!r}: it decorates a function")
        known = {"queue", "priority", "max_attempts", "timeout"}
        if unknown := set(options) - known:
            raise InvalidInput(
                f"@app.task: unknown option {', '.join(sorted(unknown))}: there are name, "
                f"{', '.join(sorted(known))}"
            )
        defaults = {
            "max_attempts": self._defaults.max_attempts,
            "timeout": self._defaults.timeout,
            **{
                key: value
                for key, value in options.items()
                if value is not None or key == "timeout"
            },
        }
        if defaults["timeout"] is UNSET:
            defaults["timeout"] = self._defaults.timeout
        task = Task(name or handler.__name__, handler, host=self, defaults=Options(**defaults))
        if task.name in self.tasks:
            raise InvalidInput(
                f"a task named {task.name!r} is registered already: give one of them another name="
            )
        self.tasks[task.name] = task
        return task

    # enqueueing

    def enqueue(self, type: str, payload: Mapping[str, Any] | None = None, **options: Any) -> Job:
        """Add a job by its task's name, where the code is not importable. The options are those of
        `task.using`."""
        settings = Options(**_known(options))
        return self.insert([self._named(type, payload, settings)], settings)[0]

    async def aenqueue(
        self, type: str, payload: Mapping[str, Any] | None = None, **options: Any
    ) -> Job:
        settings = Options(**_known(options))
        return (await self.ainsert([self._named(type, payload, settings)], settings))[0]

    def _named(self, type: str, payload: Mapping[str, Any] | None, options: Options) -> NewJob:
        payload = {} if payload is None else payload
        if not isinstance(payload, Mapping):
            raise InvalidArguments(
                f"the payload is {payload!r}: give a mapping of the task's arguments by name"
            )
        task = self.tasks.get(names.name(type, "type"))
        if task is not None:
            return options.new_job(
                type, task.arguments.encode((), payload), task.defaults, new_id()
            )
        text = encode_json(dict(payload), f"the arguments of task {type!r}")
        return options.new_job(type, text, self._defaults, new_id())

    def insert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]:
        """What tasks call. In the caller's transaction the jobs exist if and only if it commits."""
        if not jobs:
            return []
        if options.tx is None:
            return self.engine.insert(jobs, notify=options.notify)
        return self.engine.adopt(options.tx).run(self._inserting(jobs, options))

    async def ainsert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]:
        if options.tx is None or not jobs:
            return await self._runner.hop(lambda: self.insert(jobs, options))
        transaction = await self._runner.adopt(options.tx)
        return await transaction.arun(self._inserting(jobs, options))

    def _inserting(self, jobs: Sequence[NewJob], options: Options) -> Script[list[Job]]:
        queues = {job.queue for job in jobs} if options.notify else ()
        return verbs.insert(self.engine.dialect, jobs, hint=queues)

    def find_task(self, name: str) -> Task[Any, Any]:
        try:
            return self.tasks[name]
        except KeyError:
            raise UnknownTask(
                f"no task named {name!r} is registered here; registered: "
                f"{', '.join(sorted(self.tasks)) or 'none'}. Import the module that defines it"
            ) from None

    # the rest

    def stats(self) -> Stats:
        """Counts by status and queue, each up to a cap: cheap, whatever the size of the table."""
        return self._runner.go(read_stats(self.engine))

    async def astats(self) -> Stats:
        return await self._runner.ago(read_stats(self.engine))

    def migrate(self) -> list[str]:
        """Bring the tables up to this release; the names of the migrations applied."""
        return self.engine.migrate()

    def close(self) -> None:
        """Release connections and threads. Idempotent."""
        self._runner.close()

    def __enter__(self) -> "Holdfast":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Holdfast {len(self.tasks)} tasks>"  # never the URL: it may hold a password


def _known(options: Mapping[str, Any]) -> Mapping[str, Any]:
    known = set(Options.__dataclass_fields__)
    if unknown := set(options) - known:
        raise InvalidInput(
            f"unknown option {', '.join(sorted(unknown))}: there are {', '.join(sorted(known))}"
        )
    return options


def _retention(given: Mapping[str, Duration]) -> dict[Status, float]:
    finished = {status.value for status in FINISHED}
    if unknown := set(given) - finished:
        raise InvalidInput(
            f"retention={dict(given)!r}: {', '.join(sorted(map(str, unknown)))} is no final status; "
            f"give ages for {', '.join(sorted(finished))}"
        )
    ages = {**DEFAULT_RETENTION, **given}
    return {
        Status(status): seconds(age, what=f"retention of {status}") for status, age in ages.items()
    }
