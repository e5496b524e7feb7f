"""Applications with a transaction of their own: one small class for each kind of `tx=`.

Every method is `async def`, so that one test serves all kinds. The synchronous kinds never really
wait, and `drive` runs them without an event loop, as their applications do (Django refuses to work
inside one). `awaited` kinds call the async twin of a method.
"""

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

import aiosqlite
import asyncpg
import django.conf
import django.db
import psycopg
import psycopg2
import psycopg2.extensions
import psycopg2.extras
import sqlalchemy
import sqlalchemy.ext.asyncio as async_sqlalchemy
import sqlalchemy.orm
from django.db import transaction
from psycopg.conninfo import conninfo_to_dict

from tests.support import django_site

T = TypeVar("T")
WAIT = 30.0  # seconds that a SQLite connection waits for another's write lock


class Place(Protocol):
    """The database that holds the jobs and the application's rows."""

    @property
    def kind(self) -> str: ...
    @property
    def url(self) -> str: ...


def path_of(place: Place) -> str:
    return place.url.removeprefix("sqlite:///").partition("?")[0]


def connect(place: Place) -> Any:
    """The plainest connection of an application's own."""
    if place.kind == "sqlite":
        return sqlite3.connect(path_of(place), timeout=WAIT)
    return psycopg.connect(place.url)


def begin(connection: Any) -> None:
    connection.execute(
        "BEGIN IMMEDIATE" if isinstance(connection, sqlite3.Connection) else "SELECT 1"
    )


class Caller:
    """One connection of an application. `tx` is what it passes to Holdfast."""

    is_async = False
    tx: Any

    def __init__(self, place: Place) -> None:
        self.place = place

    async def open(self) -> None:
        raise NotImplementedError

    async def begin(self) -> None:
        """Do nothing: the first statement begins a transaction by itself."""

    async def execute(self, sql: str) -> None:
        self.tx.execute(sql)

    async def commit(self) -> None:
        self.tx.commit()

    async def rollback(self) -> None:
        self.tx.rollback()

    async def close(self) -> None:
        self.tx.close()


class AsyncCaller(Caller):
    is_async = True

    async def execute(self, sql: str) -> None:
        await self.tx.execute(sql)

    async def commit(self) -> None:
        await self.tx.commit()

    async def rollback(self) -> None:
        await self.tx.rollback()

    async def close(self) -> None:
        await self.tx.close()


# the drivers


class Sqlite3Implicit(Caller):
    """The module begins a transaction before the first write."""

    async def open(self) -> None:
        self.tx = sqlite3.connect(path_of(self.place), timeout=WAIT)


class Sqlite3Explicit(Caller):
    async def open(self) -> None:
        self.tx = sqlite3.connect(path_of(self.place), timeout=WAIT, isolation_level=None)

    async def begin(self) -> None:
        self.tx.execute("BEGIN")


class Aiosqlite(AsyncCaller):
    async def open(self) -> None:
        self.tx = await aiosqlite.connect(path_of(self.place), timeout=WAIT)


class AiosqliteExplicit(AsyncCaller):
    async def open(self) -> None:
        self.tx = await aiosqlite.connect(path_of(self.place), timeout=WAIT, isolation_level=None)

    async def begin(self) -> None:
        await self.tx.execute("BEGIN")


class Psycopg(Caller):
    async def open(self) -> None:
        self.tx = psycopg.connect(self.place.url)


class PsycopgAsync(AsyncCaller):
    async def open(self) -> None:
        self.tx = await psycopg.AsyncConnection.connect(self.place.url)


class Psycopg2(Caller):
    """psycopg2, with cursors of the kind that the application has chosen."""

    factory = psycopg2.extensions.cursor

    async def open(self) -> None:
        self.tx = psycopg2.connect(self.place.url, cursor_factory=self.factory)

    async def execute(self, sql: str) -> None:
        with self.tx.cursor() as cursor:
            cursor.execute(sql)


class Psycopg2Dict(Psycopg2):
    factory = psycopg2.extras.DictCursor


class Psycopg2RealDict(Psycopg2):
    factory = psycopg2.extras.RealDictCursor


class Psycopg2NamedTuple(Psycopg2):
    factory = psycopg2.extras.NamedTupleCursor


class Asyncpg(AsyncCaller):
    async def open(self) -> None:
        self.tx = await asyncpg.connect(self.place.url)

    async def begin(self) -> None:
        self._transaction = self.tx.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()


class AsyncpgPooled(Asyncpg):
    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.place.url, min_size=1, max_size=1)
        self.tx = await self._pool.acquire()

    async def close(self) -> None:
        await self._pool.release(self.tx)
        await self._pool.close()


# SQLAlchemy

DRIVERS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg"}


def engine_url(place: Place, driver: str) -> sqlalchemy.URL:
    return sqlalchemy.make_url(place.url).set(drivername=driver, query={})


class Alchemy(Caller):
    """SQLAlchemy's Connection."""

    async def open(self) -> None:
        self.engine = sqlalchemy.create_engine(engine_url(self.place, DRIVERS[self.place.kind]))
        self.tx = self._make()

    def _make(self) -> Any:
        return self.engine.connect()

    async def execute(self, sql: str) -> None:
        self.tx.execute(sqlalchemy.text(sql))

    async def close(self) -> None:
        self.tx.close()
        self.engine.dispose()


class AlchemySession(Alchemy):
    def _make(self) -> Any:
        return sqlalchemy.orm.Session(self.engine)


class AlchemyScopedSession(Alchemy):
    def _make(self) -> Any:
        return sqlalchemy.orm.scoped_session(sqlalchemy.orm.sessionmaker(self.engine))

    async def close(self) -> None:
        self.tx.remove()
        self.engine.dispose()


class AlchemyAsync(AsyncCaller):
    """SQLAlchemy's AsyncConnection."""

    driver = "postgresql+asyncpg"

    async def open(self) -> None:
        self.engine = async_sqlalchemy.create_async_engine(engine_url(self.place, self.driver))
        self.tx = await self._make()

    async def _make(self) -> Any:
        return await self.engine.connect()

    async def execute(self, sql: str) -> None:
        await self.tx.execute(sqlalchemy.text(sql))

    async def close(self) -> None:
        await self.tx.close()
        await self.engine.dispose()


class AlchemyAsyncSession(AlchemyAsync):
    async def _make(self) -> Any:
        return async_sqlalchemy.AsyncSession(self.engine)


class AlchemyAsyncScopedSession(AlchemyAsync):
    async def _make(self) -> Any:
        return async_sqlalchemy.async_scoped_session(
            async_sqlalchemy.async_sessionmaker(self.engine), scopefunc=asyncio.current_task
        )

    async def close(self) -> None:
        await self.tx.remove()
        await self.engine.dispose()


class AlchemyAiosqlite(AlchemyAsync):
    driver = "sqlite+aiosqlite"


class AlchemyAiosqliteSession(AlchemyAsyncSession):
    driver = "sqlite+aiosqlite"


class AlchemyAiosqliteScopedSession(AlchemyAsyncScopedSession):
    driver = "sqlite+aiosqlite"


class AlchemyPsycopgAsync(AlchemyAsync):
    driver = "postgresql+psycopg"


class AlchemyPsycopgAsyncSession(AlchemyAsyncSession):
    driver = "postgresql+psycopg"


# Django

_aliases = itertools.count()


class Django(Caller):
    """`connections[alias]`, inside `transaction.atomic(using=alias)`."""

    async def open(self) -> None:
        django_site.configure()
        self.alias = self._alias()
        filled = django.db.connections.configure_settings({"default": self._settings()})
        django.db.connections.databases[self.alias] = filled["default"]
        self.tx = self._connection()

    def _alias(self) -> str:
        return f"caller_{next(_aliases)}"

    def _connection(self) -> Any:
        return django.db.connections[self.alias]

    def _settings(self) -> dict[str, Any]:
        if self.place.kind == "sqlite":
            options = {"timeout": WAIT}
            name = path_of(self.place)
            return {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": options}
        info = conninfo_to_dict(self.place.url)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": info["dbname"],
            "USER": info.get("user", ""),
            "PASSWORD": info.get("password", ""),
            "HOST": info.get("host", ""),
            "PORT": info.get("port", ""),
        }

    async def begin(self) -> None:
        self._atomic = transaction.atomic(using=self.alias)
        self._atomic.__enter__()

    async def execute(self, sql: str) -> None:
        with self.tx.cursor() as cursor:
            cursor.execute(sql)

    async def commit(self) -> None:
        self._atomic.__exit__(None, None, None)

    async def rollback(self) -> None:
        error = RuntimeError("the view failed")
        self._atomic.__exit__(RuntimeError, error, None)

    async def close(self) -> None:
        self.tx.close()
        del django.db.connections[self.alias]
        del django.db.connections.databases[self.alias]


class DjangoDefault(Django):
    """`django.db.connection`, which stands for the default database."""

    def _alias(self) -> str:
        return "default"

    def _connection(self) -> Any:
        return django.db.connection


# all of them


@dataclass(frozen=True)
class Kind:
    """A kind of connection, used with the sync methods or, if `awaited`, with their async twins."""

    name: str
    engine: str
    make: type[Caller]
    awaited: bool = field(default=False)

    def __str__(self) -> str:
        return f"{self.engine}-{self.name}{'-awaited' if self.awaited else ''}"

    @asynccontextmanager
    async def opened(self, place: Place) -> AsyncIterator[Caller]:
        caller = self.make(place)
        await caller.open()
        try:
            yield caller
        finally:
            await caller.close()

    async def call(self, owner: Any, verb: str, *args: Any, **kwargs: Any) -> Any:
        """`owner.verb(...)`, or `await owner.averb(...)`."""
        if self.awaited:
            return await getattr(owner, f"a{verb}")(*args, **kwargs)
        return getattr(owner, verb)(*args, **kwargs)

    def drive(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, in an event loop if the kind is awaited."""
        if self.awaited:
            return asyncio.run(work)
        try:
            work.send(None)
        except StopIteration as end:
            return cast(T, end.value)
        raise AssertionError("a synchronous caller waited for an event loop")


_NAMES: dict[str, dict[str, type[Caller]]] = {
    "sqlite": {
        "sqlite3": Sqlite3Implicit,
        "sqlite3-explicit": Sqlite3Explicit,
        "aiosqlite": Aiosqlite,
        "aiosqlite-explicit": AiosqliteExplicit,
        "sqlalchemy": Alchemy,
        "sqlalchemy-session": AlchemySession,
        "sqlalchemy-scoped": AlchemyScopedSession,
        "sqlalchemy-aiosqlite": AlchemyAiosqlite,
        "sqlalchemy-aiosqlite-session": AlchemyAiosqliteSession,
        "sqlalchemy-aiosqlite-scoped": AlchemyAiosqliteScopedSession,
        "django": Django,
        "django-default": DjangoDefault,
    },
    "postgres": {
        "psycopg": Psycopg,
        "psycopg-async": PsycopgAsync,
        "asyncpg": Asyncpg,
        "asyncpg-pooled": AsyncpgPooled,
        "sqlalchemy": Alchemy,
        "sqlalchemy-session": AlchemySession,
        "sqlalchemy-scoped": AlchemyScopedSession,
        "sqlalchemy-asyncpg": AlchemyAsync,
        "sqlalchemy-asyncpg-session": AlchemyAsyncSession,
        "sqlalchemy-asyncpg-scoped": AlchemyAsyncScopedSession,
        "sqlalchemy-psycopg-async": AlchemyPsycopgAsync,
        "sqlalchemy-psycopg-async-session": AlchemyPsycopgAsyncSession,
        "django": Django,
        "django-default": DjangoDefault,
    },
}

# Async methods accept a synchronous connection, too, but Django's refuses to be used there.
KINDS = [
    Kind(name, engine, make, awaited)
    for engine, kinds in _NAMES.items()
    for name, make in kinds.items()
    for awaited in (True, False)
    if (awaited or not make.is_async) and not (awaited and issubclass(make, Django))
]
# An old driver, with all its kinds of cursors: a list of its own, so that few tests run with them.
PSYCOPG2_KINDS = [
    Kind(f"psycopg2-{make.factory.__name__}", "postgres", make)
    for make in (Psycopg2, Psycopg2Dict, Psycopg2RealDict, Psycopg2NamedTuple)
]
ASYNC_KINDS = [kind for kind in KINDS if kind.make.is_async]


def find(name: str) -> Kind:
    """Return a kind by its name in test ids, e.g. 'postgres-psycopg'."""
    return next(kind for kind in KINDS if str(kind) == name)
