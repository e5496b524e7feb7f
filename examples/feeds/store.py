"""The reader's own tables, the same on SQLite and on PostgreSQL, in the database that has the jobs.

Locks are taken in one order everywhere, so that no deadlock is possible: the subscription, then the
job, then the feed.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import uuid4

import sqlalchemy as sql
from sqlalchemy import Column, Connection, Dialect, ForeignKey, Integer, String, Table, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeDecorator

from holdfast import Job

TIMEOUT = 30.0  # seconds that a SQLite transaction waits for the write lock


class UtcDateTime(TypeDecorator[datetime]):
    """A time in UTC, also on SQLite, which stores no time zone."""

    impl = sql.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=value.tzinfo or UTC)


def new_id() -> str:
    return str(uuid4())


tables = sql.MetaData()

users = Table(
    "users",
    tables,
    Column("id", String, primary_key=True, default=new_id),
    Column("name", String, nullable=False, unique=True),
)
feeds = Table(
    "feeds",
    tables,
    Column("id", String, primary_key=True, default=new_id),
    Column("url", String, nullable=False, unique=True),
    Column("title", String),
    Column("etag", String),  # sent back to the server, which may answer 304
    Column("modified", String),
    Column("ttl", Integer),  # minutes, from the feed itself
    Column(
        "next_fetch_at", UtcDateTime
    ),  # copy of the job's run_at, for display; NULL while the job is disabled
    Column("consecutive_failures", Integer, nullable=False, server_default="0"),
)
entries = Table(
    "entries",
    tables,
    Column("feed_id", ForeignKey("feeds.id"), primary_key=True),
    Column("guid", String, primary_key=True),
    Column("title", String),
    Column("link", String),
)
subscriptions = Table(
    "subscriptions",
    tables,
    Column("user_id", ForeignKey("users.id"), primary_key=True),
    Column("feed_id", ForeignKey("feeds.id"), primary_key=True, index=True),
    Column("subscribed_at", UtcDateTime, nullable=False),
    Column("unsubscribed_at", UtcDateTime),  # NULL: still subscribed
)
websub = Table(
    "websub",
    tables,
    Column("feed_id", ForeignKey("feeds.id"), primary_key=True),
    Column("hub", String, nullable=False),
    Column("expires_at", UtcDateTime),  # NULL: the hub has not confirmed yet
)


@cache
def database(url: str) -> sql.Engine:
    if url.startswith("postgresql"):
        return sql.create_engine(sql.make_url(url).set(drivername="postgresql+psycopg"))
    engine = sql.create_engine(url, connect_args={"timeout": TIMEOUT})

    # Python's driver would begin a transaction with the first write, and not with the first read.
    @event.listens_for(engine, "connect")
    def connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def transaction(url: str) -> AbstractContextManager[Connection]:
    """Open a transaction: committed at the end of the block, or rolled back by an exception."""
    return database(url).begin()


def create(url: str) -> None:
    tables.create_all(database(url))


def put(
    tx: Connection, table: Table, row: Mapping[str, Any], change: Mapping[str, Any] | None = None
) -> None:
    """Insert a row; if it exists, apply `change`, or leave it as it is."""
    dialect = sqlite if tx.dialect.name == "sqlite" else postgresql
    insert = dialect.insert(table).values(row)
    if change is None:
        tx.execute(insert.on_conflict_do_nothing())
    else:
        key = list(table.primary_key.columns)
        tx.execute(insert.on_conflict_do_update(index_elements=key, set_=change))


def mirror(tx: Connection, job: Job) -> None:
    """Copy what a feed shows of its job. Called in each transaction that changes the job, so that the
    two never disagree."""
    tx.execute(
        feeds.update()
        .where(feeds.c.id == job.payload["feed_id"])
        .values(
            next_fetch_at=job.run_at if job.enabled else None,
            consecutive_failures=job.consecutive_failures,
        )
    )
