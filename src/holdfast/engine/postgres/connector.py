"""Makes connections to PostgreSQL: directly, or through a pooler that shares sessions.

Behind pgbouncer in transaction mode the next statement may run in another session, which does not know
our prepared statements and settings. A pooler is recognised because the process id that it reports at
the login is not that of the server's process; then nothing is kept in sessions.
"""

import logging
from typing import LiteralString

import psycopg
from psycopg.rows import TupleRow, tuple_row

from holdfast.engine.postgres.call_deadlines import CallDeadlines
from holdfast.engine.postgres.connection import Connection, connection_settings
from holdfast.engine.postgres.url import with_defaults

logger = logging.getLogger("holdfast.engine")

_FIRST_ANSWER = 5.0  # seconds
_REFUSED = "unsupported startup parameter"  # by pgbouncer, of the settings of a session


class Connector:
    def __init__(
        self, url: str, deadlines: CallDeadlines, *, pooler: bool | None, timeout: float
    ) -> None:
        """`pooler`: whether there is one; None: find out. `deadlines` must run while a connection is
        made: a server may complete the login and then stay silent."""
        self.pooled = bool(pooler)
        self._url = url
        self._deadlines = deadlines
        self._asks = pooler is None
        self._timeout = timeout
        self._first_answer = min(timeout, _FIRST_ANSWER)

    def connect(self) -> Connection:
        if self.pooled or not self._asks:
            return self._connect()
        try:
            connection = self._connect()
        except psycopg.OperationalError as problem:
            if _REFUSED not in str(problem):
                raise
            self._found()
            return self._connect()
        if not self._is_pooled(connection):
            return connection
        connection.close()
        self._found()
        return self._connect()

    def _connect(self) -> Connection:
        settings = connection_settings(pooler=self.pooled, timeout=self._timeout)
        settings |= with_defaults(self._url)
        connection = Connection.connect(self._url, row_factory=tuple_row, **settings)
        style = connection.info.parameter_status("DateStyle") or ""
        if self.pooled and not style.startswith("ISO"):
            # The one setting that reading a time needs, and that poolers carry along for each client.
            self._ask_first(connection, "SET datestyle TO ISO")
        return connection

    def _is_pooled(self, connection: Connection) -> bool:
        row = self._ask_first(connection, "SELECT pg_backend_pid()").fetchone()
        return row is not None and row[0] != connection.info.backend_pid

    def _ask_first(self, connection: Connection, sql: LiteralString) -> psycopg.Cursor[TupleRow]:
        """Ask something of a new connection. It is closed if no answer comes in time."""
        try:
            with self._deadlines.bounded(connection, self._first_answer):
                return connection.execute(sql, prepare=False)
        except BaseException:
            connection.close()
            raise

    def _found(self) -> None:
        self.pooled = True
        logger.warning(
            "this PostgreSQL is reached through a connection pooler, such as pgbouncer: nothing is "
            "prepared or set in its sessions, and hints are polled for. Say pooler=True if that is "
            "right, and pooler=False if it pools whole sessions"
        )
