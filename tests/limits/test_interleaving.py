"""Claims and finishes under limits, one of them interrupted before each of its statements by the whole
of another. On PostgreSQL, where such a thing can happen; on SQLite writers take turns."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest

from holdfast import DatabaseBusy, Limit
from holdfast.engine.engine import Engine
from holdfast.engine.script import Script
from holdfast.jobs import outcome
from holdfast.jobs.job import Job, NewJob
from holdfast.limits.limit import Rule, make_rule
from tests.conftest import Database
from tests.support.jobs import new

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)

LIMITS = {"whole": Limit(1), "keyed": Limit(1, per="tenant")}
PATIENCE = 20.0


class Other:
    """What happens meanwhile, in a thread: it ends, or waits for a lock, before the first goes on."""

    def __init__(self, database: Database, work: Callable[[], Any]) -> None:
        self._database = database
        self._work = work
        self.result: Any = None
        self._thread = threading.Thread(target=self._run)
        self._started = False

    def _run(self) -> None:
        self.result = self._work()

    def happen(self) -> None:
        self._started = True
        self._thread.start()
        deadline = time.monotonic() + PATIENCE
        with psycopg.connect(self._database.url, autocommit=True) as connection:
            while self._thread.is_alive() and not self._waits(connection):
                assert time.monotonic() < deadline, "neither ended nor waiting for a lock"

    def _waits(self, connection: Any) -> bool:
        [(waiting,)] = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        ).fetchall()
        return bool(waiting)

    def end(self) -> bool:
        """False: it never happened."""
        if self._started:
            self._thread.join(PATIENCE)
        return self._started


@contextmanager
def interrupted(engine: Engine, acts: Mapping[int, Callable[[], object]]) -> Iterator[None]:
    """The engine's transactions, with something that happens before statements of some numbers."""
    run = engine.run
    numbers = itertools.count()

    def interrupt(script: Script[Any]) -> Script[Any]:
        statement = next(script)
        while True:
            acts.get(next(numbers), lambda: None)()
            reply = yield statement
            try:
                statement = script.send(reply)
            except StopIteration as end:
                return end.value

    def run_interrupted(
        script: Callable[[], Script[Any]], *, write: bool, deadline: float | None = None
    ) -> Any:
        return run(lambda: interrupt(script()), write=write, deadline=deadline)

    engine.run = run_interrupted  # type: ignore[method-assign]
    try:
        yield
    finally:
        engine.run = run  # type: ignore[method-assign]


class Pair:
    """Two engines, as two processes have them, and a task with a limit."""

    def __init__(self, database: Database, first: Engine, other: Engine, limit: Limit) -> None:
        self.database, self.first, self.other = database, first, other
        self.task = f"task-{next(_tasks)}"
        rule = make_rule(self.task, [limit], ["tenant"], lambda payload: {})
        assert rule is not None
        self.rules: dict[str, Rule] = {self.task: rule}
        first.insert([self.new(), self.new()])

    def new(self) -> NewJob:
        return new(self.task, payload='{"tenant": "a"}')

    def declare(self) -> None:
        self.other.declare(self.rules[self.task].declared)

    def fetch(self, engine: Engine) -> list[Job]:
        """Tried again after a deadlock, as a worker would."""
        worker = "first" if engine is self.first else "other"
        options = {"worker": worker, "types": [self.task], "rules": self.rules}
        for _ in range(3):
            with suppress(DatabaseBusy):
                return engine.claimer.fetch("default", 1, **options).jobs
        raise AssertionError("busy all the time")

    def other_fetches(self) -> Other:
        return Other(self.database, lambda: self.fetch(self.other))

    def other_finishes(self, job: Job) -> Other:
        return Other(self.database, lambda: self.finish(self.other, job))

    def finish(self, engine: Engine, job: Job) -> None:
        engine.finish([outcome.completed(job, keep=60.0)])


_tasks = itertools.count()


@pytest.fixture(params=list(LIMITS))
def limit(request: pytest.FixtureRequest) -> Limit:
    return LIMITS[request.param]


@pytest.fixture
def pairs(database: Database, limit: Limit) -> Iterator[Pair]:
    """As many jobs as requested, each with a limit that was never used."""
    first, other = database.engine(), database.engine()
    first.beat("first", "{}")
    other.beat("other", "{}")
    return (Pair(database, first, other, limit) for _ in itertools.count())


@pytest.mark.parametrize("known", [True, False], ids=["declared", "new"])
def test_two_concurrent_claims_do_not_exceed_the_limit(pairs: Iterator[Pair], known: bool) -> None:
    taken: dict[int, int] = {}
    for at, pair in enumerate(pairs):
        if known:
            pair.declare()
        other = pair.other_fetches()
        with interrupted(pair.first, {at: other.happen}):
            jobs = pair.fetch(pair.first)
        if not other.end():
            break
        taken[at] = len(jobs) + len(other.result)
    assert len(taken) >= 4
    assert taken == dict.fromkeys(taken, 1)


@pytest.mark.parametrize("appears", [0, 1, 2])
def test_two_concurrent_claims_while_their_limit_is_created(
    pairs: Iterator[Pair], appears: int
) -> None:
    """One that was not there to be locked, and is there to be counted."""
    taken: dict[int, int] = {}
    for at, pair in enumerate(pairs, start=appears + 1):
        other = pair.other_fetches()
        with interrupted(pair.first, {appears: pair.declare, at: other.happen}):
            jobs = pair.fetch(pair.first)
        if not other.end():
            break
        taken[at] = len(jobs) + len(other.result)
    assert taken
    assert taken == dict.fromkeys(taken, 1)


def test_a_hanging_claim_does_not_delay_claims_of_other_tasks(pairs: Iterator[Pair]) -> None:
    """A process that is stopped in the midst of a claim holds its limits until the server ends its
    session. Who has other work, without limits, must not wait for that."""
    taken: list[object] = []
    for at, pair in zip((3, 6), pairs, strict=False):  # it holds a whole limit at 3, a key at 6
        pair.declare()

        def fetch_other(pair: Pair = pair) -> None:
            free, _ = pair.other.insert([new("free"), pair.new()])
            options = {"worker": "other", "types": [pair.task, "free"], "rules": pair.rules}
            try:
                jobs = pair.other.claimer.fetch("default", 5, **options).jobs
                taken.append(free.id in {job.id for job in jobs})
            except DatabaseBusy as problem:
                taken.append(problem)

        with interrupted(pair.first, {at: fetch_other}):
            pair.fetch(pair.first)
    assert taken
    assert taken == [True] * len(taken)


def test_a_claim_during_a_finish_sees_the_capacity_later(pairs: Iterator[Pair]) -> None:
    """Either the claim finds the capacity, or it parks a job and the finish puts that job back in
    line."""
    left: dict[int, int] = {}
    for at, pair in enumerate(pairs):
        [job] = pair.fetch(pair.other)
        other = pair.other_finishes(job)
        with interrupted(pair.first, {at: other.happen}):
            jobs = pair.fetch(pair.first)
        if not other.end():
            break
        left[at] = len(jobs or pair.fetch(pair.other))
    assert left
    assert left == dict.fromkeys(left, 1)


def test_a_finish_during_a_claim_releases_the_next_job(pairs: Iterator[Pair]) -> None:
    left: dict[int, int] = {}
    for at, pair in enumerate(pairs):
        [job] = pair.fetch(pair.first)
        other = pair.other_fetches()
        with interrupted(pair.first, {at: other.happen}):
            pair.finish(pair.first, job)
        if not other.end():
            break
        left[at] = len(other.result or pair.fetch(pair.other))
    assert left
    assert left == dict.fromkeys(left, 1)
