"""The same random program on a pure-Python model, on SQLite and on PostgreSQL: the same states.

The budget is fixed, and so are the programs unless HOLDFAST_MODEL_EXAMPLES asks for more, new ones.
"""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import hypothesis.strategies as st
import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast import KeyConflict
from holdfast.core.clock import FakeClock
from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.engine.open import open_engine
from holdfast.engine.postgres.claimer import PostgresClaimer
from holdfast.engine.records import Filter, Report, Seen
from holdfast.events import outbox
from holdfast.events.event import JobEvent
from holdfast.events.feed import decode
from holdfast.jobs import outcome
from holdfast.jobs.job import FINISHED, Edge, Job
from holdfast.jobs.outcome import Finish
from holdfast.jobs.read import LAST_ID
from holdfast.workflows import scripts as workflow_scripts
from tests.support import engine_commands
from tests.support.engine_commands import claim_as
from tests.support.jobs import execute, new, prune
from tests.support.model import Model

WORKERS = ["w1", "w2", "w3"]
TYPES = ["send", "fetch"]
QUEUES = ["default", "media"]
YEARS = 10 * 365 * 86400.0

VERBS = [
    *["insert"] * 4,
    *["claim"] * 6,
    *["finish"] * 4,
    *["claim_suspect", "bury"] * 3,
    *["promote", "time_passes", "cancel", "record_verdict", "report"] * 2,
    *["retry", "delete", "pause", "prune"],
    *["workflow", "retry_workflow"],
]
FINISHES = [
    *["completed", "completed", "retry", "failed"],
    *["snoozed", "stopped", "released", "crashed", "unreadable"],
]

numbers = st.integers(0, 10**6)
Reader = Callable[[], set[tuple[str, bool, int]]]  #: id, under suspicion, number of the last end
examples = int(os.environ.get("HOLDFAST_MODEL_EXAMPLES", "0"))


class Lockstep(RuleBasedStateMachine):
    """Every rule does one thing three times and compares what came back."""

    engines: list[Engine]
    readers: list[Reader]
    clock: FakeClock

    def __init__(self) -> None:
        super().__init__()
        for engine in self.engines:
            for table in ("jobs", "workers", "queues", "workflows", "edges"):
                execute(engine, f"DELETE FROM {{{table}}}")
            if isinstance(engine.claimer, PostgresClaimer):
                engine.claimer.cursor.forget()
            engine.run(partial(outbox.subscribe, engine.dialect, "model", [""], YEARS), write=True)
        self.read = [engine.run(outbox.bounds, write=False).newest for engine in self.engines]
        self.told: dict[str, list[JobEvent]] = {}  # what was told of each job
        self.model = Model(self.clock)
        self.ids: list[str] = []
        self.claims: list[Job] = []
        self.graves = 0
        self.steps = 0

    def pick(self, number: int, pick: Random) -> str | None:
        """A job, mostly one that runs or ran lately."""
        if self.claims and pick.random() < 0.7:
            return self.claims[-1 - number % min(len(self.claims), 4)].id
        return self.ids[number % len(self.ids)] if self.ids else None

    def all_agree(self, answers: list[Any], expected: Any) -> None:
        for engine, answer in zip(self.engines, answers, strict=True):
            assert answer == expected, f"{type(engine).__name__}: {answer} is not {expected}"

    @rule(
        verb=st.sampled_from(VERBS),
        number=numbers,
    )
    def step(self, verb: str, number: int) -> None:
        """One rule with weighted verbs: left to itself, the machine spends its steps on those that
        take no arguments, and hardly ever finishes what it claimed. It also likes to draw the same
        numbers again and again: the count of steps keeps the choices apart."""
        self.steps += 1
        pick = Random(number * 10_007 + self.steps)
        getattr(self, verb)(pick.randrange(10**6), pick)
        for engine in self.engines:
            engine.maintenance.find_orphans(1000)
            engine.maintenance.advance_workflows(1000)
        self.model.advance()

    def insert(self, number: int, pick: Random) -> None:
        for _ in range(1 + number % 3):
            fields: dict[str, Any] = {
                "type": pick.choice(TYPES),
                "queue": pick.choice(QUEUES),
                "priority": pick.randint(-2, 2),
                "delay": pick.choice([0.0, 0.0, 0.0, 10.0, 60.0]),
                "payload": f'{{"n":{len(self.ids)}}}',
            }
            if pick.random() < 0.5:
                fields["key"] = pick.choice(["a", "b"])
                fields["on_conflict"] = pick.choice(["existing", "replace", "raise", "debounce"])
            if pick.random() < 0.2:
                fields["idempotency_key"] = pick.choice(["x", "y"])
            job = new(**fields)
            self.ids.append(job.id)
            self.all_agree(
                [_insert(engine, job) for engine in self.engines], self.model.insert(job)
            )

    def workflow(self, number: int, pick: Random) -> None:
        flow, jobs = new_id(), list[Any]()
        for place in range(2 + number % 4):
            parents = pick.sample(jobs, min(len(jobs), pick.randint(0, 2)))
            policies = [pick.choice(["cancel", "cancel", "continue", "hold"]) for _ in parents]
            edges = tuple(Edge(job.id, how) for job, how in zip(parents, policies, strict=True))
            fields = {"delay": pick.choice([0.0, 0.0, 60.0]), "priority": pick.randint(-2, 2)}
            jobs.append(new("send", workflow_id=flow, node=f"n{place}", after=edges, **fields))
        for name in pick.sample(["@completed", "@failed", "@finished"], pick.randint(0, 2)):
            jobs.append(new("fetch", workflow_id=flow, node=name))
        self.ids += [job.id for job in jobs]
        for engine in self.engines:
            engine.run(partial(workflow_scripts.start, engine.dialect, flow, "w", jobs), write=True)
        self.model.flows[flow] = "running"
        for job in jobs:
            self.model.insert(job)

    def retry_workflow(self, number: int, pick: Random) -> None:
        if self.model.flows:
            flow = list(self.model.flows)[-1 - number % min(len(self.model.flows), 3)]
            scripts = [
                partial(workflow_scripts.retry, engine.dialect, flow) for engine in self.engines
            ]
            pairs = zip(self.engines, scripts, strict=True)
            done = [engine.run(script, write=True) for engine, script in pairs]
            self.all_agree(done, self.model.retry_flow(flow))

    def worker(self, number: int, pick: Random) -> str:
        """The name of one, which has mostly said hello."""
        name = f"{pick.choice(WORKERS)}-{self.graves}"
        if number % 8:
            supervised = name.startswith(WORKERS[0])
            info = '{"supervised": true}' if supervised else "{}"
            alive = [engine.beat(name, info).alive for engine in self.engines]
            self.all_agree(alive, self.model.beat(name))
            if supervised:
                self.model.supervised.add(name)
        return name

    def holders(self) -> list[str]:
        rows = self.model.rows.values()
        return [str(row.worker) for row in rows if row.status == "running"]

    def recent(self, number: int) -> Job | None:
        """Mostly a recent claim, also one that is long stale: all are remembered."""
        if not self.claims:
            return None
        return self.claims[-1 - number % min(len(self.claims), 5 if number % 3 else 30)]

    def claim(self, number: int, pick: Random) -> None:
        name = self.worker(number, pick)
        queue, limit = pick.choice(QUEUES), pick.randint(1, 4)
        types = pick.choice([TYPES, TYPES, TYPES, TYPES, TYPES[:1], TYPES[1:], ["other"]])
        taken = [
            claim_as(engine, queue, limit, worker=name, types=types) for engine in self.engines
        ]
        self.all_agree(
            [[job.id for job in jobs] for jobs in taken],
            self.model.claim(queue, limit, name, types),
        )
        self.claims += taken[0]

    def claim_suspect(self, number: int, pick: Random) -> None:
        name = self.worker(number, pick)
        queues = pick.choice([QUEUES, QUEUES, QUEUES[:1]])
        types = pick.choice([TYPES, TYPES, TYPES, TYPES[:1], ["other"]])
        level, limit = pick.choice([None, None, 1, 2, 3]), pick.choice([1, 1, 2, 5])
        options: dict[str, Any] = {"level": level, "worker": name, "types": types}
        taken = [engine.claimer.claim_suspects(queues, limit, **options) for engine in self.engines]
        self.all_agree(
            [[job.id for job in jobs] for jobs in taken],
            self.model.claim_suspects(queues, limit, level, name, types),
        )
        self.claims += taken[0]

    def record_verdict(self, number: int, pick: Random) -> None:
        if (job := self.recent(number)) is not None:
            for engine in self.engines:
                engine.record_verdict(job.claim, f"E: {number}")
            if (row := self.model.held(*job.claim)) is not None:
                row.verdict = f"E: {number}"

    def report(self, number: int, pick: Random) -> None:
        if (job := self.recent(number)) is not None:
            progress, message = number / 10_000, pick.choice([None, "half"])
            for engine in self.engines:
                engine.report([Report(*job.claim, progress, message)])
            if (row := self.model.held(*job.claim)) is not None:
                row.progress, row.message = progress, message

    def finish(self, number: int, pick: Random) -> None:
        if (job := self.recent(number)) is None:
            return
        kind = pick.choice(FINISHES)
        chained = kind == "completed" and pick.random() < 0.3
        children = (new("fetch", key="a"), new("send")) if chained else ()
        self.ids += [child.id for child in children]
        finish = _finish(job, kind, pick.choice([0.0, 10.0]), children)
        self.all_agree(
            [engine.finish([finish])[job.claim] for engine in self.engines],
            self.model.finish(finish),
        )

    def promote(self, number: int, pick: Random) -> None:
        limit = 1 + number % 5
        moved = [engine.promote(limit).moved for engine in self.engines]
        self.all_agree(moved, self.model.promote(limit))

    def bury(self, number: int, pick: Random) -> None:
        """Some take their leave first. They come back under new names, as they do after a death."""
        if not self.holders():
            self.claim(number, pick)
        name = pick.choice(self.holders() or [f"{pick.choice(WORKERS)}-{self.graves}"])
        if pick.random() < 0.3:
            for engine in self.engines:
                engine.leave(name)
            self.model.leave(name)
        rows = self.model.rows.items()
        held = [id for id, row in rows if (row.worker, row.status) == (name, "running")]
        begun = pick.choice([None, None, held, held[:1], held[1:]])
        crash = pick.choice([None, "its process died: SIGSEGV"])
        silent = pick.random() < 0.3
        for engine in self.engines:
            engine.sweep([self.seen(engine, name, begun, crash, silent=silent)], limit=1000)
        if silent:
            begun = crash = None
        self.model.bury(name, None if begun is None else set(begun), crash, silent=silent)
        self.graves += number % 4 > 0  # the dead try again now and then

    def seen(
        self, engine: Engine, name: str, begun: list[str] | None, crash: str | None, *, silent: bool
    ) -> Seen:
        """Silent: as it was last heard; else its process was waited for."""
        if silent:
            beats = [worker.beat_no for worker in engine.workers() if worker.id == name]
            return Seen(name, beats[0] if beats else 0)
        claims = None if begun is None else tuple(job.claim for job in engine.get(begun))
        return Seen(name, None, claims, crash)

    def cancel(self, number: int, pick: Random) -> None:
        if (id := self.pick(number, pick)) is not None:
            done = [
                bool(engine_commands.cancel(engine, [id], keep=30.0)) for engine in self.engines
            ]
            self.all_agree(done, self.model.cancel(id, 30.0))

    def retry(self, number: int, pick: Random) -> None:
        if (id := self.pick(number, pick)) is not None:
            done = [bool(engine_commands.retry(engine, [id])) for engine in self.engines]
            self.all_agree(done, self.model.retry(id))

    def delete(self, number: int, pick: Random) -> None:
        if (id := self.pick(number, pick)) is not None:
            done = [bool(engine_commands.delete(engine, [id])) for engine in self.engines]
            self.all_agree(done, self.model.delete(id))

    def pause(self, number: int, pick: Random) -> None:
        queue, paused = pick.choice(QUEUES), number % 5 == 0
        for engine in self.engines:
            engine_commands.pause(engine, queue, paused)
        (self.model.paused.add if paused else self.model.paused.discard)(queue)

    def time_passes(self, number: int, pick: Random) -> None:
        self.clock.advance(pick.choice([1.0, 9.0, 60.0]))

    def prune(self, number: int, pick: Random) -> None:
        gone = [prune(engine, limit=1000) for engine in self.engines]
        self.all_agree(gone, self.model.prune())

    @invariant()
    def the_rows_are_the_same(self) -> None:
        expected = {id: row.seen() for id, row in self.model.rows.items()}
        self.all_agree([_rows(engine, self.ids) for engine in self.engines], expected)

    @invariant()
    def the_events_are_the_same(self) -> None:
        """Of each job the same, in the same order; and the last one tells how it ended."""
        found = [self.events_of(number) for number in range(len(self.engines))]
        first = {id: [_told(event) for event in events] for id, events in found[0].items()}
        self.all_agree(
            [{id: [_told(one) for one in events] for id, events in of.items()} for of in found],
            first,
        )
        for id, events in found[0].items():
            self.told.setdefault(id, []).extend(events)
        for id, row in self.model.rows.items():
            if row.status in FINISHED:
                assert self.told[id][-1].status == row.status, id

    def events_of(self, number: int) -> dict[str, list[JobEvent]]:
        engine, found = self.engines[number], dict[str, list[JobEvent]]()
        script = partial(outbox.read, self.read[number], 10_000, mark=False)
        for row in engine.run(script, write=False).rows:
            event = decode(engine.dialect, row)
            self.read[number] = event.position
            found.setdefault(event.job_id, []).append(event)
        return found

    @invariant()
    def the_workflows_are_the_same(self) -> None:
        found = [
            engine.run(
                partial(workflow_scripts.listing, engine.dialect, LAST_ID, 1000), write=False
            )
            for engine in self.engines
        ]
        self.all_agree(
            [{info.id: info.status.value for info in infos} for infos in found], self.model.flows
        )

    @invariant()
    def the_suspects_are_the_same(self) -> None:
        self.all_agree([set(engine.suspects()) for engine in self.engines], self.model.suspects())

    @invariant()
    def what_no_verb_tells_is_the_same(self) -> None:
        rows = self.model.rows.items()
        expected = {(id, row.suspect, row.finish_no) for id, row in rows}
        self.all_agree([reader() for reader in self.readers], expected)

    @invariant()
    def lists_and_failures_are_the_same(self) -> None:
        newest_first = sorted(self.model.rows, reverse=True)
        failures = {id: row.failures[::-1] for id, row in self.model.rows.items() if row.failures}
        for engine in self.engines:
            assert [job.id for job in engine.search(Filter(), limit=500).jobs] == newest_first
            for id, errors in failures.items():
                assert [attempt.error for attempt in engine_commands.attempts(engine, id)] == errors


def _told(event: JobEvent) -> tuple[object, ...]:
    return (
        *(event.kind, event.status, event.type, event.queue, event.attempts, event.claim_no),
        *(event.worker_id, event.run_at, event.error, event.result, event.progress, event.message),
    )


def _reader(connection: Any, table: str) -> Reader:
    """Which jobs are under suspicion, also of those that do not wait; and the number of the last end,
    by which one that is sent again is known."""
    sql = f"SELECT CAST(id AS text), suspect, finish_no FROM {table}"
    return lambda: {(id, bool(bad), end) for id, bad, end in connection.execute(sql).fetchall()}


def _insert(engine: Engine, job: Any) -> tuple[str, bool] | None:
    try:
        made = engine.insert([job])[0]
    except KeyConflict:
        return None
    return made.id, made.created


def _finish(job: Job, kind: str, delay: float, children: tuple[Any, ...]) -> Finish:
    match kind:
        case "completed":
            result = str(job.claim_no) if job.claim_no % 3 else None
            return outcome.completed(job, result, keep=20.0, enqueue=children)
        case "retry":
            return outcome.retry_later(job, f"E: {job.claim_no}", delay=delay)
        case "failed":
            return outcome.failed(job, f"E: {job.claim_no}", keep=40.0)
        case "snoozed":
            return outcome.snoozed(job, delay=delay)
        case "stopped":
            return outcome.stopped(job, keep=20.0)
        case "crashed":
            return outcome.crashed(job, f"E: {job.claim_no}", delay=delay, own=delay > 0)
        case "unreadable":
            return outcome.unreadable(job, f"E: {job.claim_no}", delay=delay)
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
            "dropped" if (job.error or "").startswith("Cancelled: ") else job.error,
            job.body.result if job.body else None,
            job.completed_at,
            job.keep_until,
            job.cancel_requested,
            job.crashes,
            job.deaths,
            job.verdict,
            job.unreadable_since,
            job.progress,
            job.message,
        )
        for job in engine.get(ids)
    }


@contextmanager
def both_engines(
    postgres_url: str, clock: FakeClock
) -> Iterator[tuple[list[Engine], list[Reader]]]:
    schema = f"test_{uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.db"
        engines = [
            open_engine(f"sqlite:///{path}", clock=clock),
            open_engine(postgres_url, schema=schema, auto_migrate=True, clock=clock),
        ]
        try:
            for engine in engines:
                engine.migrate()
            with (
                closing(sqlite3.connect(path, isolation_level=None)) as one,
                psycopg.connect(postgres_url, autocommit=True) as two,
            ):
                yield engines, [_reader(one, "holdfast_jobs"), _reader(two, f"{schema}.jobs")]
        finally:
            for engine in engines:
                engine.close()
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.mark.timeout(3600 if examples else 600)
def test_the_engines_agree_with_the_model_and_with_each_other(postgres_url: str) -> None:
    clock = FakeClock()
    with both_engines(postgres_url, clock) as (engines, readers):
        parts = {"engines": engines, "readers": readers, "clock": clock}
        machine = type("Machine", (Lockstep,), parts)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples or 40,
                stateful_step_count=80,
                derandomize=not examples,
                # To make a failing program small takes many runs of it: only when looking for one.
                phases=[Phase.generate, *([Phase.shrink] if examples else [])],
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
