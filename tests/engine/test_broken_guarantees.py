"""Guards with teeth: each guarantee holds, and breaks when the one word that gives it is removed."""

import sqlite3
from collections.abc import Callable

import psycopg
import pytest

from holdfast import DatabaseBusy
from holdfast.engine.engine import Engine
from holdfast.engine.records import Seen
from holdfast.engine.script import Script
from holdfast.engine.sqlite import writer
from holdfast.jobs import commands, outcome
from holdfast.jobs import read as read_scripts
from tests.conftest import Database
from tests.support.engine_commands import claim_as
from tests.support.jobs import WORKER, claim, insert, new, running


def mutate(engine: Engine, statement: str, old: str, new: str) -> None:
    """Take a guard out of a statement of this engine."""
    statements = engine._statements  # type: ignore[attr-defined]
    text = statements._blocks[statement]
    assert old in text, f"{statement} has no {old!r}"
    statements._blocks = {**statements._blocks, statement: text.replace(old, new)}
    statements._commands.clear()


def stale_finish_is_accepted(engine: Engine) -> bool:
    stale = running(engine)
    engine.leave(WORKER)
    engine.sweep([Seen(WORKER, None)], limit=10)
    claim(engine, worker="other")
    engine.finish([outcome.completed(stale, '"stale"', keep=60.0)])
    return engine.get([stale.id])[0].status == "completed"


def test_the_fence_refuses_a_stale_finish(database: Database) -> None:
    assert not stale_finish_is_accepted(database.engine())


FENCES = {
    ("sqlite", "complete"): "   AND claim_no = :claim_no\n",
    ("sqlite", "finish"): "   AND claim_no = :claim_no\n",
    ("postgres", "complete"): "   AND jobs.claim_no = new.claim_no\n",
    ("postgres", "finish"): "   AND jobs.claim_no = new.claim_no\n",
}


@pytest.mark.parametrize("statement", ["complete", "finish"])
def test_without_the_fence_a_stale_finish_is_accepted(database: Database, statement: str) -> None:
    engine = database.engine()
    mutate(engine, statement, FENCES[database.kind, statement], "")
    assert stale_finish_is_accepted(engine)


def claims_past_a_locked_row(engine: Engine, database: Database) -> bool:
    first, second = engine.insert([new(), new()])
    engine.beat(WORKER, "{}")
    with psycopg.connect(database.url) as holder:
        holder.execute(f"SELECT 1 FROM {database.schema}.jobs WHERE id = %s FOR UPDATE", [first.id])
        try:
            taken = claim_as(engine, "default", 1, worker=WORKER, types=["send"])
        except DatabaseBusy:
            return False
        finally:
            holder.rollback()
    return [job.id for job in taken] == [second.id]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_skip_locked_lets_a_claim_pass_locked_rows(database: Database) -> None:
    assert claims_past_a_locked_row(database.engine(), database)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_without_skip_locked_a_claim_waits_for_another_transaction(database: Database) -> None:
    engine = database.engine()
    mutate(engine, "claim", "FOR NO KEY UPDATE SKIP LOCKED", "FOR NO KEY UPDATE")
    assert not claims_past_a_locked_row(engine, database)


def reads_then_writes(engine: Engine, meanwhile: Callable[[], None]) -> bool:
    """A verb that looks and then writes, while a stranger tries to write in between."""
    job = insert(engine)

    def script() -> Script[list[str]]:
        yield from read_scripts.get(engine.dialect, [job.id])
        meanwhile()
        return (yield from commands.cancel(engine.dialect, [job.id], 60.0))

    try:
        return engine.run(script, write=True) == [job.id]
    except DatabaseBusy:
        return False


def stranger(database: Database) -> Callable[[], None]:
    def write() -> None:
        connection = sqlite3.connect(database.path, timeout=0.05, isolation_level=None)
        try:
            connection.execute("INSERT INTO holdfast_queues (name) VALUES ('stranger')")
        except sqlite3.OperationalError:
            pass  # locked out, as it should be
        finally:
            connection.close()

    return write


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_begin_immediate_lets_a_write_wait(database: Database) -> None:
    assert reads_then_writes(database.engine(), stranger(database))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_without_begin_immediate_a_write_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = database.engine()
    monkeypatch.setattr(writer, "BEGIN", "BEGIN DEFERRED")
    assert not reads_then_writes(engine, stranger(database))
