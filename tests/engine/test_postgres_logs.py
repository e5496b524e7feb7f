"""Lines of logs refer to their jobs by a foreign key: what its locks must not disturb."""

import threading

import psycopg
import pytest

from holdfast.engine.records import Report
from holdfast.jobs import outcome
from tests.conftest import Database
from tests.jobs.test_log_lines import kept, line, places
from tests.support import engine_commands
from tests.support.jobs import claim, running
from tests.support.waiting import until

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)


def test_uncommitted_log_lines_block_no_other_client(database: Database) -> None:
    """Progress, the finish and the next claim do not take the job for held."""
    engine = database.engine()
    job = running(engine)
    with psycopg.connect(database.url) as connection:
        connection.execute(
            f"INSERT INTO {database.schema}.logs VALUES (%s, 1, 1, 1, now(), 'info', 'x')", [job.id]
        )
        engine.report([Report(*job.claim, 50.0, "half")])
        assert engine.get([job.id])[0].progress == 50.0
        applied = engine.finish([outcome.retry_later(job, "E: no", delay=0.0)])
        assert list(applied.values()) == [outcome.Applied.APPLIED]
        engine.promote(10)
        assert [one.id for one in claim(engine)] == [job.id]


def test_log_lines_wait_for_the_deletion_of_their_job(database: Database) -> None:
    """A delete that is not committed yet decides about the lines, and fails no others."""
    engine = database.engine()
    job, other = running(engine), running(engine)
    writer = threading.Thread(target=lambda: engine.log([line(job), line(other)]))
    with psycopg.connect(database.url) as connection:
        connection.execute(f"DELETE FROM {database.schema}.jobs WHERE id = %s", [job.id])
        [(own,)] = connection.execute("SELECT txid_current()::text").fetchall()
        writer.start()
        with psycopg.connect(database.url, autocommit=True) as watch:
            waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND transactionid = %s::xid"
            until(lambda: watch.execute(waits, [own]).fetchall(), "the writer's wait")
    writer.join()
    assert places(engine_commands.logs(engine, other.id)) == ["1.1"]
    assert kept(engine) == 1
