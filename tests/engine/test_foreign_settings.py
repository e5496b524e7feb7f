"""A caller's PostgreSQL connection with codecs, settings and an isolation level of its own: no verb in
its transaction depends on them, and all of them are as before afterwards."""

from collections.abc import Iterator
from typing import Any, NoReturn

import psycopg
import psycopg2
import psycopg2.extensions
import pytest
from psycopg.adapt import Dumper, Loader

from holdfast import Context, Holdfast, Job, Limit, Task
from holdfast.engine.transaction import aunwrap
from tests.conftest import Database
from tests.support.callers import KINDS, PSYCOPG2_KINDS, Caller, Kind
from tests.support.jobs import execute

TYPES = ("json", "jsonb", "uuid", "timestamptz", "timestamp", "date", "time", "interval", "numeric")
TYPES_OF_PSYCOPG2 = (114, 3802, 2950, 1184, 1114, 1082, 1083, 1186, 1700)  # the same, by oid
SETTINGS = {
    "datestyle": "SQL, DMY",
    "timezone": "Asia/Kathmandu",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "search_path": '""',  # as an empty one is told
    "standard_conforming_strings": "off",
    "backslash_quote": "off",
    "extra_float_digits": "0",
    "row_security": "off",
    "lc_messages": "C",
    "statement_timeout": "55s",
    "lock_timeout": "44s",
}
POSTGRES = [kind for kind in KINDS if kind.engine == "postgres"]
MOVIE = ("movie", 7)


def over(kinds: list[Kind]) -> Any:
    return pytest.mark.parametrize(
        ("database", "kind"),
        [pytest.param(kind.engine, kind, id=str(kind)) for kind in kinds],
        indirect=["database"],
    )


@pytest.fixture
def send(app: Holdfast) -> Task[[int], int]:
    @app.task(concurrency=Limit(2, per="n"))
    def send(n: int) -> int:
        return n

    return send


# what a caller may have done to its connection


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("a codec of the caller's was used")


class Refusing(Loader):
    timezone = None  # which Django looks at

    def load(self, data: Any) -> NoReturn:
        refuse()


class RefusingDumper(Dumper):
    def dump(self, obj: Any) -> NoReturn:
        refuse()


async def spoil_codecs(tx: Any) -> None:
    """Let nothing of these types pass, in either direction."""
    raw = await aunwrap(tx)
    if isinstance(raw, psycopg.Connection | psycopg.AsyncConnection):
        for name in TYPES:
            raw.adapters.register_loader(name, Refusing)
        for name in ("uuid.UUID", "datetime.datetime", "datetime.timedelta", "decimal.Decimal"):
            raw.adapters.register_dumper(name, RefusingDumper)
        return
    if isinstance(raw, psycopg2.extensions.connection):
        for oid in TYPES_OF_PSYCOPG2:
            refusing = psycopg2.extensions.new_type((oid,), f"REFUSING_{oid}", refuse)
            psycopg2.extensions.register_type(refusing, raw)
        return
    for name in TYPES:
        codec = {"encoder": refuse, "decoder": refuse, "format": "text"}
        await raw.set_type_codec(name, schema="pg_catalog", **codec)


async def spoil_settings(caller: Caller, isolation: str) -> None:
    await caller.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
    for name, value in SETTINGS.items():
        given = value.strip('"')
        await caller.execute(f"SET LOCAL {name} = '{given}'")


def checked(table: str) -> str:
    """Note what the settings are; the fixture `noted` compares."""
    names = ", ".join(f"('{name}')" for name in SETTINGS)
    told = "SELECT name || '=' || current_setting(name)"
    return f"INSERT INTO {table} {told} FROM (VALUES {names}) AS known (name)"


@pytest.fixture
def noted(database: Database, app: Holdfast) -> Iterator[str]:
    table = f"{database.schema}.noted"
    app.migrate()
    execute(app.engine, f"CREATE TABLE {table} (line text)")
    yield table
    lines = [line for (line,) in execute(app.engine, f"SELECT line FROM {table}")]
    assert lines
    assert set(lines) == {f"{name}={value}" for name, value in SETTINGS.items()}


# the verbs


async def jobs(app: Holdfast, send: Task[[int], int], kind: Kind, tx: Any) -> Job:
    """Every verb of jobs."""
    using = send.using(tx=tx)
    keyed = using.using(key="k", entity=MOVIE, delay=60, timeout=1.5, expires="1h")
    job: Job = await kind.call(keyed, "enqueue", 1)
    assert (job.created, job.status) == (True, "scheduled")
    found: Job = await kind.call(keyed, "enqueue", 2)
    assert (found.id, found.created, found.created_at) == (job.id, False, job.created_at)
    assert found.run_at == job.run_at
    for policy in ("replace", "debounce"):
        taken = await kind.call(keyed.using(on_conflict=policy), "enqueue", 3)
        assert (taken.id, taken.payload) == (job.id, {"n": 3})
    once = using.using(idempotency_key="i", entity=MOVIE)
    assert (await kind.call(once, "enqueue", 4)).id == (await kind.call(once, "enqueue", 5)).id
    many = await kind.call(using, "enqueue_many", [{"n": n} for n in range(60)])
    assert len({one.id for one in many}) == 60
    assert all(one.created and one.status == "pending" for one in many)
    await kind.call(app, "enqueue", "elsewhere", {"text": "\u20ac\U0001f600\\'"}, tx=tx)

    assert (await kind.call(app.jobs, "cancel", job.id, tx=tx)).status == "cancelled"
    assert (await kind.call(app.jobs, "retry", job.id, tx=tx)).status == "pending"
    assert (await kind.call(app.jobs, "edit", job.id, tx=tx, priority=3, delay=9)).priority == 3
    assert (await kind.call(app.jobs, "cancel_all", entity=MOVIE, tx=tx)).changed == 2
    assert (await kind.call(app.jobs, "retry_all", entity=MOVIE, tx=tx)).changed == 2
    assert await kind.call(app.jobs, "count", payload={"n": 4}, tx=tx) == 2
    assert (await kind.call(app.jobs, "latest", key="k", tx=tx)).id == job.id
    await kind.call(app.jobs, "delete", many[0].id, tx=tx)
    assert (await kind.call(app.jobs, "delete_all", type="elsewhere", tx=tx)).changed == 1
    whole: Job = await kind.call(app.jobs, "get", many[1].id, tx=tx)
    assert whole.created_at == many[1].created_at
    return whole


async def the_rest(app: Holdfast, send: Task[[int], int], kind: Kind, tx: Any) -> None:
    """Workflows, recurring jobs, queues and limits."""
    steps = [send.call(n) for n in range(3)]
    flow = await kind.call(app, "chain", *steps, tx=tx)
    await kind.call(app, "batch", steps, on_completed=send.call(3), tx=tx)
    assert await kind.call(app.workflows, "cancel", flow.id, tx=tx) == 3
    assert await kind.call(app.workflows, "retry", flow.id, tx=tx) == 3

    daily = send.using(tx=tx, key="daily", cron="0 3 * * *", timezone="Europe/Zurich")
    made = await kind.call(daily, "schedule", 1)
    assert (await kind.call(daily, "schedule", 2)).id == made.id
    named = ("send", "daily")
    assert (await kind.call(app.schedules, "get", *named, tx=tx)).run_at == made.run_at
    assert not (await kind.call(app.schedules, "disable", *named, tx=tx)).enabled
    assert (await kind.call(app.schedules, "enable", *named, tx=tx)).enabled
    await kind.call(app.schedules, "reschedule", *named, after="1h", tx=tx)
    await kind.call(app.schedules, "run_now", *named, tx=tx)
    sync = app.schedules.async_ if kind.awaited else app.schedules.sync
    synced: Any = sync(*named, enabled=lambda: False, tx=tx)
    assert not (await synced if kind.awaited else synced).enabled
    await kind.call(app.schedules, "delete", *named, tx=tx)

    await kind.call(app.queues, "pause", "media", tx=tx)
    await kind.call(app.queues, "resume", "media", tx=tx)
    await kind.call(app.queues, "limit", "media", 3, rate="5/m", tx=tx)


@over([*POSTGRES, *PSYCOPG2_KINDS])
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "SERIALIZABLE"])
def test_every_command_runs_in_a_transaction_with_its_own_codecs_and_settings(
    database: Database,
    app: Holdfast,
    send: Task[[int], int],
    noted: str,
    kind: Kind,
    isolation: str,
) -> None:
    async def body() -> Job:
        async with kind.opened(database) as caller:
            await caller.begin()
            await spoil_settings(caller, isolation)
            await spoil_codecs(caller.tx)
            seen = await jobs(app, send, kind, caller.tx)
            await the_rest(app, send, kind, caller.tx)
            await caller.execute(checked(noted))
            await caller.commit()
            return seen

    seen = kind.drive(body())
    assert app.jobs.get(seen.id) == seen


@over([kind for kind in POSTGRES if kind.name in ("psycopg", "psycopg-async", "asyncpg")])
def test_a_completion_runs_in_a_transaction_with_its_own_settings(
    database: Database, app: Holdfast, send: Task[[int], int], noted: str, kind: Kind
) -> None:
    async def write(ctx: Context) -> None:
        async with kind.opened(database) as caller:
            await caller.begin()
            await spoil_settings(caller, "SERIALIZABLE")
            await spoil_codecs(caller.tx)
            ctx.enqueue(send.using(idempotency_key="k"), n=7)
            await kind.call(ctx, "complete", {"paid": True}, tx=caller.tx)
            await caller.execute(checked(noted))
            await caller.commit()

    @app.task
    def pay(ctx: Context) -> None:
        kind.drive(write(ctx))

    job = pay.enqueue()
    with app.worker() as worker:
        assert worker.join(timeout=60)
    done = app.jobs.get(job.id)
    assert (done.status, done.result, done.error) == ("completed", {"paid": True}, None)
    assert app.jobs.count(type="send", status="completed") == 1


@over([kind for kind in POSTGRES if kind.name in ("psycopg", "psycopg-async", "asyncpg")])
def test_settings_are_restored_after_an_error(
    database: Database, app: Holdfast, send: Task[[int], int], noted: str, kind: Kind
) -> None:
    send.using(key="k").enqueue(1)

    async def body() -> None:
        async with kind.opened(database) as caller:
            await caller.begin()
            await spoil_settings(caller, "READ COMMITTED")
            with pytest.raises(Exception, match="holds the key 'k'"):
                await kind.call(
                    send.using(tx=caller.tx, key="k", on_conflict="raise"), "enqueue", 2
                )
            await caller.execute(checked(noted))
            await caller.commit()

    kind.drive(body())
