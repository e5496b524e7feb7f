"""Databases with tables and without rows, for tests that need one each: made once, and used again.

To make the tables takes PostgreSQL a fifth of a second, which thousands of tests would wait for.
"""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg

from holdfast.engine.open import open_engine

# What a test may have changed besides rows: columns, indexes, constraints, triggers, functions,
# settings of tables.
SHAPE = """
SELECT md5(string_agg(word, ' ' ORDER BY word)) FROM (
    SELECT format('%%s.%%s:%%s', relname, attname, atttypid) FROM pg_class
    JOIN pg_attribute ON attrelid = pg_class.oid WHERE relnamespace = %(schema)s::regnamespace
    UNION ALL
    SELECT format('%%s %%s %%s', relname, relkind, reloptions) FROM pg_class
    WHERE relnamespace = %(schema)s::regnamespace
    UNION ALL
    SELECT tgname FROM pg_trigger JOIN pg_class ON tgrelid = pg_class.oid
    WHERE relnamespace = %(schema)s::regnamespace AND NOT tgisinternal
    UNION ALL
    SELECT conname FROM pg_constraint WHERE connamespace = %(schema)s::regnamespace
    UNION ALL
    SELECT format('%%s %%s', proname, md5(prosrc)) FROM pg_proc
    WHERE pronamespace = %(schema)s::regnamespace
) AS words (word)
"""
OTHERS = """
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
TABLES = """
SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'
"""
KEPT = ("migrations", "outbox")  # what has rows from its first moment


class Schemas:
    """Schemas of one PostgreSQL database. One comes back to be given out again if nobody is connected
    any more, so that nobody writes to it behind the next test's back, and if it has kept its shape.
    Tables that a test made beside ours go first."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._free: list[str] = []
        self._tables: set[str] = set()
        self._shape = ""
        self._reset = ""
        self._connection: psycopg.Connection | None = None

    def take(self) -> str:
        return self._free.pop() if self._free else self._make()

    def give(self, schema: str) -> None:
        connection = self._connected()
        alone = self._alone(connection)
        if alone:
            self._drop_others(connection, schema)
        if alone and self._shape_of(connection, schema) == self._shape:
            connection.execute(self._reset.replace("@", schema).encode())
            self._free.append(schema)
        else:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> psycopg.Connection:
        """One that is kept: a new one takes longer than what is done on it. A server that was
        restarted has ended it."""
        try:
            if self._connection is not None:
                self._connection.execute("SELECT 1")
                return self._connection
        except psycopg.OperationalError:
            self.close()
        self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection

    def _make(self) -> str:
        schema = f"test_{uuid4().hex[:12]}"
        with closing(open_engine(self.url, schema=schema, auto_migrate=True)) as engine:
            engine.migrate()
        if not self._shape:
            connection = self._connected()
            self._tables = tables(connection, schema)
            self._shape = self._shape_of(connection, schema)
            self._reset = reset(connection, schema).replace(schema, "@")
        return schema

    def _drop_others(self, connection: psycopg.Connection, schema: str) -> None:
        for name in tables(connection, schema) - self._tables:
            connection.execute(f'DROP TABLE {schema}."{name}" CASCADE'.encode())

    @staticmethod
    def _shape_of(connection: psycopg.Connection, schema: str) -> str:
        """Empty for a schema without our tables."""
        known = connection.execute("SELECT to_regclass(%s)", [f"{schema}.migrations"]).fetchone()
        if known is None or known[0] is None:
            return ""
        applied = f"SELECT number, title FROM {schema}.migrations ORDER BY number"
        shape = connection.execute(SHAPE, {"schema": schema}).fetchone()
        return f"{shape} {connection.execute(applied.encode()).fetchall()}"

    @staticmethod
    def _alone(connection: psycopg.Connection) -> bool:
        """A server notices the end of a connection a moment after the client."""
        for _ in range(25):
            if connection.execute(OTHERS).fetchone() is None:
                return True
            time.sleep(0.002)
        return False


def tables(connection: psycopg.Connection, schema: str) -> set[str]:
    if connection.execute("SELECT to_regnamespace(%s)", [schema]).fetchone() == (None,):
        return set()
    return {name for (name,) in connection.execute(TABLES, [schema])}


def reset(connection: psycopg.Connection, schema: str) -> str:
    """What makes a used schema a new one."""
    names = connection.execute(
        "SELECT relname, relkind::text FROM pg_class WHERE relnamespace = %s::regnamespace",
        [schema],
    ).fetchall()
    tables = [name for name, kind in names if kind == "r" and name not in KEPT]
    sequences = [name for name, kind in names if kind == "S"]
    commands = [f"DELETE FROM {schema}.{name}" for name in tables]
    commands += [f"SELECT setval('{schema}.{name}', 1, false)" for name in sequences]
    commands.append(f"UPDATE {schema}.outbox SET floor = 0 WHERE floor <> 0")
    return ";\n".join(commands)


class Template:
    """A SQLite database with tables, to be copied."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "template.db"
        with closing(open_engine(f"sqlite:///{self._path}", auto_migrate=True)) as engine:
            engine.migrate()

    def copy(self, path: Path) -> None:
        """By SQLite, which alone may open its files."""
        with (
            closing(sqlite3.connect(self._path)) as source,
            closing(sqlite3.connect(path)) as target,
        ):
            target.execute("PRAGMA synchronous = OFF")
            source.backup(target)
