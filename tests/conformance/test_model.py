"""The same random program on a pure-Python model, on SQLite and on PostgreSQL: the same states.

The budget is fixed, and so are the programs unless HOLDFAST_MODEL_EXAMPLES asks for more, new ones.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import hypothesis.strategies as st
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast import KeyConflict, outcome
from holdfast.clock import FakeClock
from holdfast.engine import Engine, Filter, Seen, open_engine
from holdfast.job import Job
from holdfast.outcome import Finish
from tests.support.jobs import execute, new
from tests.support.model import Model

WORKERS = ["w1", "w2", "w3"]
TYPES = ["send", "fetch"]
QUEUES = ["default", "media"]
FOREVER = 100 * 365 * 86400.0

numbers = st.integers(0, 10**6)
examples = int(os.environ.get("HOLDFAST_MODEL_EXAMPLES", "0"))


class Lockstep(RuleBasedStateMachine):
    """Every rule does one thing three times and compares what came back."""

    engines: list[Engine]
    clock: FakeClock

    def __init__(self) -> None:
        super().__init__()
        for engine in self.engines:
            for table in ("jobs", "workers", "queues"):
                execute(engine, f"DELETE FROM {{{table}}}")
            if hasattr(engine, "_low"):
                engine._low.clear()
        self.model = Model(self.clock)
        self.ids: list[str] = []
        self.claims: list[Job] = []
        self.graves = 0

    def pick(self, number: int) -> str | None:
        return self.ids[number % len(self.ids)] if self.ids else None

    def all_agree(self, answers: list[Any], expected: Any) -> None:
        for engine, answer in zip(self.engines, answers, strict=True):
            assert answer == expected, f"{type(engine).__name__}: {answer} is not {expected}"

    @rule(
        type=st.sampled_from(TYPES),
        queue=st.sampled_from(QUEUES),
        priority=st.integers(-2, 2),
        delay=st.sampled_from([0.0, 0.0, 0.0, 10.0, 60.0]),
        key=st.sampled_from([None, None, "a", "b"]),
        policy=st.sampled_from(["existing", "replace", "raise", "debounce"]),
        count=st.integers(1, 3),
    )
    def insert(self, count: int, policy: Any, **fields: Any) -> None:
        for _ in range(count):
            payload = f'{{"n":{len(self.ids)}}}'
            if fields["key"] is not None:
                fields["on_conflict"] = policy
            job = new(payload=payload, **fields)
            self.ids.append(job.id)
            self.all_agree(
                [_insert(engine, job) for engine in self.engines], self.model.insert(job)
            )

    @rule(
        worker=st.sampled_from(WORKERS),
        queue=st.sampled_from(QUEUES),
        limit=st.integers(1, 4),
        types=st.sampled_from([TYPES, TYPES, TYPES[:1], ["other"]]),
        says_hello=st.sampled_from([True, True, True, False]),
    )
    def claim(
        self, worker: str, queue: str, limit: int, types: list[str], says_hello: bool
    ) -> None:
        name = f"{worker}-{self.graves}"
        if says_hello:
            alive = [engine.beat(name, "{}").alive for engine in self.engines]
            self.all_agree(alive, self.model.beat(name))
        taken = [engine.claim(queue, limit, worker=name, types=types) for engine in self.engines]
        self.all_agree(
            [[job.id for job in jobs] for jobs in taken],
            self.model.claim(queue, limit, name, types),
        )
        self.claims += taken[0]

    @rule(
        number=numbers,
        kind=st.sampled_from(
            ["completed", "completed", "retry", "failed", "snoozed", "stopped", "released"]
        ),
        delay=st.sampled_from([0.0, 10.0]),
        chain=st.booleans(),
    )
    def finish(self, number: int, kind: str, delay: float, chain: bool) -> None:
        """Also of claims that are long stale: all that were ever made are remembered."""
        if not self.claims:
            return
        job = self.claims[-1 - number % min(len(self.claims), 12)]
        children = (new("fetch", key="a"), new("send")) if chain and kind == "completed" else ()
        self.ids += [child.id for child in children]
        finish = _finish(job, kind, delay, children)
        self.all_agree(
            [engine.finish([finish])[job.claim] for engine in self.engines],
            self.model.finish(finish),
        )

    @rule(limit=st.integers(1, 5))
    def promote(self, limit: int) -> None:
        moved = [engine.promote(limit).moved for engine in self.engines]
        self.all_agree(moved, self.model.promote(limit))

    @rule(worker=st.sampled_from(WORKERS), all_return=st.booleans())
    def bury(self, worker: str, all_return: bool) -> None:
        """Workers come back under new names, as they do after a death."""
        name = f"{worker}-{self.graves}"
        for engine in self.engines:
            engine.sweep([Seen(name, None)], limit=1000)
        self.model.bury(name)
        self.graves += all_return

    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        if (id := self.pick(number)) is not None:
            done = [bool(engine.cancel([id], keep=30.0)) for engine in self.engines]
            self.all_agree(done, self.model.cancel(id, 30.0))

    @rule(number=numbers)
    def retry(self, number: int) -> None:
        if (id := self.pick(number)) is not None:
            done = [bool(engine.retry([id])) for engine in self.engines]
            self.all_agree(done, self.model.retry(id))

    @rule(number=numbers)
    def delete(self, number: int) -> None:
        if (id := self.pick(number)) is not None:
            done = [bool(engine.delete([id])) for engine in self.engines]
            self.all_agree(done, self.model.rows.pop(id, None) is not None)

    @rule(queue=st.sampled_from(QUEUES), paused=st.sampled_from([True, False, False]))
    def pause(self, queue: str, paused: bool) -> None:
        for engine in self.engines:
            engine.pause(queue, paused)
        (self.model.paused.add if paused else self.model.paused.discard)(queue)

    @rule(seconds=st.sampled_from([1.0, 9.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def prune(self) -> None:
        gone = [engine.prune(older_than=-FOREVER, limit=1000) for engine in self.engines]
        self.all_agree(gone, self.model.prune())

    @invariant()
    def the_rows_are_the_same(self) -> None:
        expected = {id: row.seen() for id, row in self.model.rows.items()}
        self.all_agree([_rows(engine, self.ids) for engine in self.engines], expected)

    @invariant()
    def lists_and_failures_are_the_same(self) -> None:
        newest_first = sorted(self.model.rows, reverse=True)
        failures = {id: row.failures[::-1] for id, row in self.model.rows.items() if row.failures}
        for engine in self.engines:
            assert [job.id for job in engine.search(Filter(), limit=500).jobs] == newest_first
            for id, errors in failures.items():
                assert [attempt.error for attempt in engine.attempts(id)] == errors


def _insert(engine: Engine, job: Any) -> tuple[str, bool] | None:
    try:
        made = engine.insert([job])[0]
    except KeyConflict:
        return None
    return made.id, made.created


def _finish(job: Job, kind: str, delay: float, children: tuple[Any, ...]) -> Finish:
    match kind:
        case "completed":
            return outcome.completed(job, str(job.claim_no), keep=20.0, enqueue=children)
        case "retry":
            return outcome.retry_later(job, f"E: {job.claim_no}", delay=delay)
        case "failed":
            return outcome.failed(job, f"E: {job.claim_no}", keep=40.0)
        case "snoozed":
            return outcome.snoozed(job, delay=delay)
        case "stopped":
            return outcome.stopped(job, keep=20.0)
        case _:
            return outcome.released(job)


def _rows(engine: Engine, ids: list[str]) -> dict[str, tuple[object, ...]]:
    return {
        job.id: (
            job.status,
            job.run_at,
            job.body.payload if job.body else None,
            job.priority,
            job.attempts,
            job.claim_no,
            job.worker_id,
            job.error,
            job.body.result if job.body else None,
            job.completed_at,
            job.keep_until,
            job.cancel_requested,
        )
        for job in engine.get(ids)
    }


@contextmanager
def both_engines(postgres_url: str, clock: FakeClock) -> Iterator[list[Engine]]:
    schema = f"test_{uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory() as folder:
        engines = [
            open_engine(f"sqlite:///{Path(folder) / 'jobs.db'}", clock=clock),
            open_engine(postgres_url, schema=schema, auto_migrate=True, clock=clock),
        ]
        try:
            for engine in engines:
                engine.migrate()
            yield engines
        finally:
            for engine in engines:
                engine.close()
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.mark.timeout(900 if examples else 180)
def test_the_engines_agree_with_the_model_and_with_each_other(postgres_url: str) -> None:
    clock = FakeClock()
    with both_engines(postgres_url, clock) as engines:
        machine = type("Machine", (Lockstep,), {"engines": engines, "clock": clock})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples or 60,
                stateful_step_count=50,
                derandomize=not examples,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
