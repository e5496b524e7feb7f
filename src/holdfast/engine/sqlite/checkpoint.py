"""Checkpoints: moving the log into the database, by nobody but us.

SQLite up to 3.51.2 can corrupt a database when a commit restarts the log during a second checkpoint.
So automatic checkpoints are off on every connection of ours, and ours run while the writer holds the
write lock, which no other checkpoint of ours can hold, and under which no commit can happen.
"""

import sqlite3

LOG_PAGES = 2000  # about 8 MB
_PAGES_PER_COMMIT = 4.0  # a first guess; every checkpoint tells how it was


class Checkpoints:
    """When the next one is due, by what was written, and how it is done."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._written = 0.0  # in commits, larger ones counted by their rows and bytes
        self._pages = _PAGES_PER_COMMIT

    def count(self, *, rows: int = 0, size: int = 0) -> None:
        self._written += 1 + rows / 10 + size / 16384

    @property
    def due(self) -> bool:
        return self._written * self._pages >= LOG_PAGES

    def run(self, cursor: sqlite3.Cursor) -> None:
        """`cursor` is the writer's, between two transactions."""
        written, self._written = self._written, 0.0
        cursor.execute("BEGIN IMMEDIATE")
        try:
            _, log, _ = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        finally:
            cursor.execute("ROLLBACK")
        # The log also holds what other processes wrote: then they take their turns sooner, too.
        self._pages = min(max((self._pages + log / max(written, 1.0)) / 2, 0.5), 50.0)
