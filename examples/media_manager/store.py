"""The application's own tables, on SQLite or PostgreSQL, in the database that has the jobs.

Every function takes the transaction: the caller decides what is committed together.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    create_engine,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

tables = MetaData()
libraries = Table(
    *("libraries", tables),
    Column("id", Integer, primary_key=True),
    Column("path", String, nullable=False, unique=True),
)
media = Table(
    *("media", tables),
    Column("id", Integer, primary_key=True),
    Column("library_id", ForeignKey("libraries.id"), nullable=False),
    Column("kind", String, nullable=False),  # movie or series
    Column("path", String, nullable=False, unique=True),
    Column("title", String, nullable=False),
    Column("year", Integer),
    Column("overview", String),
    Column("state", String, nullable=False, default="found"),  # then enriched, published
)
assets = Table(
    *("assets", tables),
    Column("media_id", ForeignKey("media.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String, primary_key=True),
    Column("file", String, nullable=False),  # in the cache; named by its content
)


class EntityGone(Exception):
    """The entity was deleted, so a retry would fail again."""


class AlreadyExists(Exception):
    """The entity exists already."""


class Store:
    def __init__(self, url: str, timeout: int) -> None:
        """`patience`: seconds to wait for a connection, or for SQLite's lock."""
        options: dict[str, Any] = {"connect_timeout": timeout, "application_name": "media-manager"}
        if url.startswith("sqlite"):
            options = {"timeout": timeout}
        driver = url.replace("postgresql://", "postgresql+psycopg://", 1)
        self._engine: Engine = create_engine(driver, connect_args=options)

    def create(self) -> None:
        tables.create_all(self._engine)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction: committed at the end of the block, or rolled back by an exception."""
        with self._engine.begin() as tx:
            yield tx

    def close(self) -> None:
        self._engine.dispose()


def add_library(tx: Connection, path: str) -> int:
    try:
        return int(
            tx.execute(insert(libraries).values(path=path).returning(libraries.c.id)).scalar_one()
        )
    except IntegrityError:
        raise AlreadyExists(f"{path} is a library already") from None


def find_library(tx: Connection, id: int) -> Row[Any]:
    return _found(tx.execute(select(libraries).where(libraries.c.id == id)).first(), "library", id)


def add_media(tx: Connection, library: int, found: Iterable[Mapping[str, Any]]) -> list[Row[Any]]:
    """Insert rows for new media; returns them."""
    known = set(tx.scalars(select(media.c.path)))
    new = [{**one, "library_id": library} for one in found if one["path"] not in known]
    return [tx.execute(insert(media).values(one).returning(media)).one() for one in new]


def find_media(tx: Connection, kind: str, id: int) -> Row[Any]:
    where = (media.c.id == id, media.c.kind == kind)
    return _found(tx.execute(select(media).where(*where)).first(), kind, id)


def list_media(tx: Connection) -> list[dict[str, Any]]:
    return [dict(row) for row in tx.execute(select(media).order_by(media.c.title)).mappings()]


def delete_media(tx: Connection, id: int) -> None:
    tx.execute(delete(assets).where(assets.c.media_id == id))
    tx.execute(delete(media).where(media.c.id == id))


def save_metadata(
    tx: Connection, id: int, details: Mapping[str, Any], files: Mapping[str, str]
) -> None:
    """Replace the metadata of a title. Idempotent."""
    known = {"title": details["title"], "overview": details["overview"], "state": "enriched"}
    tx.execute(update(media).where(media.c.id == id).values(known))
    tx.execute(delete(assets).where(assets.c.media_id == id))
    if files:
        rows = [{"media_id": id, "name": name, "file": file} for name, file in files.items()]
        tx.execute(insert(assets), rows)


def set_published(tx: Connection, id: int) -> None:
    tx.execute(update(media).where(media.c.id == id).values(state="published"))


def assets_of(tx: Connection, id: int) -> dict[str, str]:
    rows = tx.execute(select(assets.c.name, assets.c.file).where(assets.c.media_id == id))
    return {row.name: row.file for row in rows}


def cached_files(tx: Connection) -> set[str]:
    return set(tx.scalars(select(assets.c.file)))


def _found(row: Row[Any] | None, kind: str, id: int) -> Row[Any]:
    if row is None:
        raise EntityGone(f"there is no {kind} {id}: it was deleted, or never was")
    return row
