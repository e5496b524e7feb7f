"""A hot standby of a `PostgresServer`: it follows by streaming, answers reads and refuses writes
(SQLSTATE 25006) until `promote()`.

    with PostgresServer(own=True) as primary, StandbyServer(primary) as standby:
        url = several_hosts(primary.url(), standby.url())
"""

import time
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.support.server import PATIENCE, PostgresServer


class StandbyServer(PostgresServer):
    """A copy of the primary as of `start()`, on a port of its own, that follows it.

    `halt()` and `resume()` make an outage of the standby. Databases are made on the primary.
    """

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__(own=True)
        if not primary.can_restart:
            raise RuntimeError("a standby needs a primary of ours: PostgresServer(own=True)")
        self.primary = primary

    def start(self) -> None:
        """Copy the primary's data and follow it; return when reads are answered."""
        try:
            self._create_cluster()
            self.resume()
        except BaseException:
            self.stop("immediate")
            raise

    def url(self, database: str | None = None) -> str:
        """The URL of a database on the standby, by default of the primary's first one."""
        name = urlsplit(self.primary.url(database)).path
        return f"postgresql://postgres@127.0.0.1:{self._port}{name}"

    def catch_up(self) -> None:
        """Wait until everything that the primary has committed by now can be read here."""
        with psycopg.connect(self.primary.url(), autocommit=True) as primary:
            position = primary.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert position is not None
        self._wait_for("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", *position)

    def promote(self) -> None:
        """Make it a primary; return when it takes writes. The old primary is not told."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true, %s)", [int(PATIENCE)])
        self._wait_for("SELECT NOT pg_is_in_recovery()")

    def _fill_cluster(self) -> None:
        command: list[str | Path] = [self._bin / "pg_basebackup", "-D", self._home / "data"]
        # -R writes standby.signal and primary_conninfo.
        command += ["-d", self.primary.url("postgres"), "-R", "-X", "stream", "-c", "fast"]
        self._run([*command, "--no-sync"])

    def _wait_for(self, question: str, *params: str) -> None:
        deadline = time.monotonic() + PATIENCE
        with psycopg.connect(self.url(), autocommit=True) as connection:
            while connection.execute(question.encode(), params).fetchone() != (True,):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the standby never answered yes to: {question}")
                time.sleep(0.02)


def several_hosts(*urls: str) -> str:
    """One libpq URL with the hosts of all of these, in this order; the rest is the first one's."""
    first, *_ = parts = [urlsplit(url) for url in urls]
    hosts = ",".join(part.netloc.rpartition("@")[2] for part in parts)
    user, at, _ = first.netloc.rpartition("@")
    return first._replace(netloc=f"{user}{at}{hosts}").geturl()
