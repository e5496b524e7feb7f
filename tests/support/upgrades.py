"""Databases as an older release left them, and how the tables of two databases compare."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from holdfast.engine import migrations
from holdfast.engine.open import open_engine
from holdfast.engine.postgres import migrator as postgres
from holdfast.engine.sqlite import migrator as sqlite

NAMES = {"sqlite": "holdfast_{}", "postgres": "{schema}.{}"}
_POSTGRES = """
SELECT 'column', attrelid::regclass::text || '.' || attname,
    format('%%s %%s %%s', format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid))
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE relnamespace = %(schema)s::regnamespace AND relkind = 'r' AND attnum > 0
UNION ALL
SELECT 'index', indexrelid::regclass::text,
    format('%%s %%s %%s', indisvalid, indisready, pg_get_indexdef(indexrelid))
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = %(schema)s::regnamespace
UNION ALL
SELECT 'constraint', conrelid::regclass::text || '.' || conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = %(schema)s::regnamespace
UNION ALL
SELECT 'options', oid::regclass::text, reloptions::text
FROM pg_class WHERE relnamespace = %(schema)s::regnamespace
"""


@contextmanager
def plain(kind: str, url: str) -> Iterator[Any]:
    """A connection without the library, in autocommit."""
    if kind == "sqlite":
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
            yield connection
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            yield connection


def table(kind: str, schema: str, name: str) -> str:
    return NAMES[kind].format(name, schema=schema)


def known(kind: str, url: str, schema: str) -> list[migrations.Migration]:
    with closing(open_engine(url, schema=schema)) as engine:
        return list(engine._migrations.known())  # type: ignore[attr-defined]


def make_first_tables(kind: str, url: str, schema: str) -> None:
    """The tables of the release that knew migration 0001 alone."""
    first = known(kind, url, schema)[0]
    columns = sqlite.COLUMNS if kind == "sqlite" else postgres.COLUMNS
    now = "0" if kind == "sqlite" else "now()"
    applied = table(kind, schema, "migrations")
    with plain(kind, url) as connection:
        connection.execute(
            "PRAGMA journal_mode = WAL" if kind == "sqlite" else f"CREATE SCHEMA {schema}"
        )
        connection.execute("BEGIN")
        connection.execute(f"CREATE TABLE {applied} ({columns})")
        for command in migrations.commands(first.sql):
            connection.execute(command)
        connection.execute(f"INSERT INTO {applied} VALUES (1, 'initial', FALSE, {now})")
        connection.execute("COMMIT")


def forget_upgrades(kind: str, url: str, schema: str) -> None:
    """Unrecord every migration but the first, and drop the index that 0002 builds: the next migration
    takes the same locks as on the older tables, on which today's code does not run."""
    index = "holdfast_jobs_idempotency" if kind == "sqlite" else f"{schema}.jobs_idempotency"
    with plain(kind, url) as connection:
        connection.execute(f"DELETE FROM {table(kind, schema, 'migrations')} WHERE number > 1")
        connection.execute(f"DROP INDEX {index}")


def shape(kind: str, url: str, schema: str) -> list[tuple[str, ...]]:
    """Tables, columns, indexes, constraints and recorded migrations."""
    applied = f"SELECT number, title FROM {table(kind, schema, 'migrations')} ORDER BY number"
    with plain(kind, url) as connection:
        if kind == "sqlite":
            objects = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
            found: list[tuple[str, ...]] = [
                (kind, name, " ".join((sql or "").replace("IF NOT EXISTS ", "").split()))
                for kind, name, sql in objects
            ]
        else:
            rows = connection.execute(_POSTGRES, {"schema": schema}).fetchall()
            found = [tuple(str(word).replace(f"{schema}.", "") for word in row) for row in rows]
        return [*sorted(found), *connection.execute(applied).fetchall()]
