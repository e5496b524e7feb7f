"""What a role or a database may say of its sessions: ours do not depend on it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdfast import Context, Holdfast, Job, Limit, Status
from holdfast.tasks.using import Using
from tests.cli.command import process
from tests.support.server import PostgresServer
from tests.support.threads import in_threads

SETTINGS = {
    "datestyle": "SQL, DMY",
    "intervalstyle": "iso_8601",
    "timezone": "America/St_Johns",
    "client_encoding": "LATIN1",
    "standard_conforming_strings": "off",
    "bytea_output": "escape",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "search_path": "shadows, pg_catalog",
    "statement_timeout": "100ms",
    "lock_timeout": "1ms",
}
# In front of the built-in ones: a function that every enqueue of several jobs calls, and an operator.
SHADOWS = """
CREATE SCHEMA shadows;
CREATE FUNCTION shadows.json_array_elements_text(json) RETURNS SETOF text LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'a shadow was called'; END $$;
CREATE FUNCTION shadows.json_to_recordset(json) RETURNS SETOF record LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'a shadow was called'; END $$;
CREATE FUNCTION shadows.same(text, text) RETURNS boolean LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'a shadow was called'; END $$;
CREATE OPERATOR shadows.= (FUNCTION = shadows.same, LEFTARG = text, RIGHTARG = text);
"""


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    """A database whose sessions begin with all of that."""
    made = server.create_database()
    name = made.rpartition("/")[2]
    try:
        with psycopg.connect(made, autocommit=True) as connection:
            connection.execute(SHADOWS)
            for setting, value in SETTINGS.items():
                words = sql.SQL("ALTER DATABASE {} SET {} TO {}")
                given = sql.SQL(value) if setting == "search_path" else sql.Literal(value)
                connection.execute(words.format(*map(sql.Identifier, (name, setting)), given))
        yield made
    finally:
        server.drop_database(name)


def _enqueued(using: Using[[str]]) -> list[Job]:
    return [using.using(on_conflict="replace").enqueue(str(n)) for n in range(10)]


def test_a_database_with_unusual_settings_works(url: str, tmp_path: Path) -> None:
    moment = datetime(2099, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
    with Holdfast(url, auto_migrate=True) as app:

        @app.task(concurrency=Limit(2, per="text"), max_attempts=2, backoff=0.01)
        def echo(ctx: Context, text: str) -> str:
            ctx.progress(50, text)
            ctx.log.info("%s", text)
            if ctx.attempt == 1:
                raise ValueError(text)
            return text

        text = "\u20ac \U0001f600 '\\' \\u0041"
        later = echo.using(run_at=moment, idempotency_key="once").enqueue(text)
        assert (later.run_at, later.status) == (moment, "scheduled")
        assert app.jobs.get(later.id) == echo.using(idempotency_key="once").enqueue("again")
        assert abs(later.created_at - datetime.now(UTC)) < timedelta(minutes=1)
        race = echo.using(key="race", delay=9999)
        raced = [job.id for part in in_threads(8, lambda _: _enqueued(race)) for job in part]
        assert len(set(raced)) == 1
        many = echo.enqueue_many([{"text": text} for _ in range(60)])
        echo.using(key="daily", cron="0 3 * * *", timezone="Europe/Zurich").schedule(text)
        with app.workflow() as flow:
            first = flow.add(echo, text)
            flow.add(echo.using(after=[first]), text)
        with app.worker(concurrency=8) as worker:
            while app.jobs.count(status=["pending", "running", "retrying", "blocked"]):
                worker.join(timeout=1)
        assert {app.jobs.get(job.id).result for job in many} == {text}
        assert app.workflows.get(flow.id).status == "completed"
        assert len(app.jobs.attempts(many[0].id)) == 1
        assert app.jobs.count(status="completed", payload={"text": text}) == 62
        assert app.stats().jobs[Status.COMPLETED] == 62
        assert app.jobs.cancel_all(type="echo").changed == 2
    done = process("doctor", "--url", url, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_behind_a_pooler_the_doctor_names_settings_that_cannot_be_set(url: str) -> None:
    """Of those that we need, a pooler carries along only DateStyle for each client."""
    with psycopg.connect(url, autocommit=True) as connection:
        own = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} RESET search_path").format(own))
    with Holdfast(url, pooler=True) as app:
        found = {one.subject: one for one in app.engine.doctor.diagnose() if one.level == "fail"}
    assert "datestyle" not in found
    for name in ("client_encoding", "default_transaction_isolation"):
        assert SETTINGS[name] in found[name].text
        assert f"SET {name} = " in found[name].text
