"""The media rows: the application's own table, in the same SQLite file as its jobs."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

PROCESSING, READY, FAILED = 1, 0, -1

# The trigger deletes a row's jobs with the row, in the same transaction.
TABLES = """
CREATE TABLE IF NOT EXISTS media (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    original_path TEXT NOT NULL,
    web_path TEXT,
    processing INTEGER NOT NULL CHECK (processing IN (1, 0, -1))
);
CREATE TRIGGER IF NOT EXISTS media_gone AFTER DELETE ON media
BEGIN
    DELETE FROM holdfast_jobs WHERE entity_type = 'media' AND entity_id = json_quote(OLD.id);
END;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    id: str
    name: str  #: as its owner calls it
    original_path: str  #: the blob that was uploaded; it is kept
    web_path: str | None  #: the blob that browsers get
    processing: int  #: 1: it is being made, 0: it is ready, -1: it could not be made


@contextmanager
def transaction(url: str) -> Iterator[sqlite3.Connection]:
    """Open a transaction: committed at the end of the block, or rolled back by an exception."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as tx, tx:
        yield tx


def add(tx: sqlite3.Connection, media: Media) -> None:
    tx.execute(
        "INSERT INTO media (id, name, original_path, web_path, processing) VALUES (?, ?, ?, ?, ?)",
        (media.id, media.name, media.original_path, media.web_path, media.processing),
    )


def get(tx: sqlite3.Connection, id: str) -> Media | None:
    tx.row_factory = sqlite3.Row
    row = tx.execute("SELECT * FROM media WHERE id = ?", (id,)).fetchone()
    return None if row is None else Media(**dict(row))


def ready(tx: sqlite3.Connection, id: str, web_path: str) -> None:
    values = (READY, web_path, id)
    tx.execute("UPDATE media SET processing = ?, web_path = ? WHERE id = ?", values)


def failed(tx: sqlite3.Connection, id: str) -> None:
    tx.execute("UPDATE media SET processing = ? WHERE id = ?", (FAILED, id))


def delete(tx: sqlite3.Connection, id: str) -> None:
    tx.execute("DELETE FROM media WHERE id = ?", (id,))
