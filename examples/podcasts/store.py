"""The directory's own tables, in the file that the jobs are in: one transaction reaches both."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from examples.podcasts.feeds import Feed

PATH = Path(os.environ.get("PODCASTS_DB", "podcasts.db")).absolute()

TABLES = """
CREATE TABLE IF NOT EXISTS podcasts (
    id TEXT PRIMARY KEY,
    url TEXT NOT NULL UNIQUE,
    title TEXT,
    minutes INTEGER
);
CREATE TABLE IF NOT EXISTS episodes (
    podcast_id TEXT NOT NULL REFERENCES podcasts (id),
    guid TEXT NOT NULL,
    title TEXT NOT NULL,
    audio TEXT,
    published TEXT,
    seconds INTEGER NOT NULL,
    PRIMARY KEY (podcast_id, guid)
);
"""


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """A write transaction: committed at the end of the block, or rolled back."""
    connection = sqlite3.connect(PATH, timeout=30, isolation_level=None)
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
    finally:
        connection.close()  # what was not committed is undone


def prepare() -> None:
    with transaction() as connection:
        for statement in TABLES.split(";"):
            connection.execute(statement)


def find_or_add(connection: sqlite3.Connection, url: str) -> str:
    """Return the id of the podcast with this feed, which is added if it is new."""
    connection.execute(
        "INSERT INTO podcasts (id, url) VALUES (?, ?) ON CONFLICT (url) DO NOTHING",
        (token_hex(8), url),
    )
    found = connection.execute("SELECT id FROM podcasts WHERE url = ?", (url,)).fetchone()
    return str(found["id"])


def url_of(podcast_id: str) -> str:
    found = find(podcast_id)
    if found is None:
        raise LookupError(f"there is no podcast {podcast_id!r}: it was deleted, or never added")
    return str(found["url"])


def find(podcast_id: str) -> sqlite3.Row | None:
    connection = sqlite3.connect(PATH, timeout=30)
    connection.row_factory = sqlite3.Row
    try:
        row: sqlite3.Row | None = connection.execute(
            "SELECT *, (SELECT count(*) FROM episodes WHERE podcast_id = podcasts.id) AS episodes"
            " FROM podcasts WHERE id = ?",
            (podcast_id,),
        ).fetchone()
        return row
    finally:
        connection.close()


def keep(connection: sqlite3.Connection, podcast_id: str, feed: Feed) -> None:
    """Store the feed. Idempotent, since a run may be repeated."""
    connection.execute("UPDATE podcasts SET title = ? WHERE id = ?", (feed.title, podcast_id))
    connection.executemany(
        "INSERT OR REPLACE INTO episodes (podcast_id, guid, title, audio, published, seconds)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                podcast_id,
                episode.guid,
                episode.title,
                episode.audio,
                episode.published and episode.published.isoformat(),
                episode.seconds,
            )
            for episode in feed.episodes
        ],
    )


def add_up(connection: sqlite3.Connection, podcast_id: str) -> int:
    """Return the minutes of all episodes of a podcast, and write them into its row."""
    [minutes] = connection.execute(
        "SELECT coalesce(sum(seconds), 0) / 60 FROM episodes WHERE podcast_id = ?", (podcast_id,)
    ).fetchone()
    connection.execute("UPDATE podcasts SET minutes = ? WHERE id = ?", (minutes, podcast_id))
    return int(minutes)
