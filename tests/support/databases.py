"""Empty databases with tables, one for each test, reused between tests.

PostgreSQL needs a fifth of a second to make the tables, too long for thousands of tests.
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
KEPT = ("migrations", "outbox")  # tables that are never empty


class Schemas:
    """A pool of schemas in one PostgreSQL database. A schema is reused if no other client is connected,
    which could still write to it, and if its definition is unchanged. Tables that the test added are
    dropped first."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._free: list[str] = []
        self._tables: set[str] = set()
        self._shape = ""
        self._reset = ""
        self._connection: psycopg.Connection | None = None

    def take(self) -> str:
        return self._free.pop() if self._free else self._make()

    def put_back(self, schema: str) -> None:
        connection = self._connected()
        unused = self._no_other_client(connection)
        if unused:
            self._drop_others(connection, schema)
        if unused and self._shape_of(connection, schema) == self._shape:
            connection.execute(self._reset.replace("@", schema).encode())
            self._free.append(schema)
        else:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> psycopg.Connection:
        """Return a connection that is kept, since connecting takes long. A restart of the server
        ends it."""
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
        """Return a hash of the definition; empty for a schema without our tables."""
        known = connection.execute("SELECT to_regclass(%s)", [f"{schema}.migrations"]).fetchone()
        if known is None or known[0] is None:
            return ""
        applied = f"SELECT number, title FROM {schema}.migrations ORDER BY number"
        shape = connection.execute(SHAPE, {"schema": schema}).fetchone()
        return f"{shape} {connection.execute(applied.encode()).fetchall()}"

    @staticmethod
    def _no_other_client(connection: psycopg.Connection) -> bool:
        """Return whether no other client is connected. The server notices a disconnect with a delay."""
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
    """Return the SQL that empties a used schema."""
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
    """An empty SQLite database with tables, to be copied."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "template.db"
        with closing(open_engine(f"sqlite:///{self._path}", auto_migrate=True)) as engine:
            engine.migrate()

    def copy(self, path: Path) -> None:
        """Copy by SQLite's backup: only SQLite may open its files."""
        with (
            closing(sqlite3.connect(self._path)) as source,
            closing(sqlite3.connect(path)) as target,
        ):
            target.execute("PRAGMA synchronous = OFF")
            source.backup(target)
