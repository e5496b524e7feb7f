"""Processes that migrate a database and exit at a given statement.

Reads lines "when number url schema" from its standard input. For each it forks a process, which exits
`before` or `after` the statement with that number, and writes the exit code: 0 if the migration ended
first. On SQLite all statements count, on PostgreSQL those that change something.
"""

import os
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from holdfast.engine.open import open_engine
from holdfast.engine.postgres import connector
from holdfast.engine.postgres.connection import Connection

KILLED = 9
CHANGES = ("ALTER", "CREATE", "DROP", "INSERT")


class ExitPoint:
    def __init__(self, when: str, number: int) -> None:
        self._when = when
        self._left = number

    def around(self, run: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left == 0 and self._when == "before":
            os._exit(KILLED)
        result = run()
        if self._left == 0:
            os._exit(KILLED)
        return result


def migrate(when: str, number: str, url: str, schema: str) -> None:
    exit_point = ExitPoint(when, int(number))

    class ExitingConnection(Connection):
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            if str(query).split()[0] not in CHANGES:
                return super().execute(query, *args, **options)
            return exit_point.around(
                lambda: super(ExitingConnection, self).execute(query, *args, **options)
            )

    class ExitingSqliteConnection(sqlite3.Connection):
        def execute(self, *args: Any) -> Any:
            return exit_point.around(lambda: super(ExitingSqliteConnection, self).execute(*args))

    real = sqlite3.connect
    sqlite3.connect = lambda *args, **options: real(
        *args, factory=ExitingSqliteConnection, **options
    )  # type: ignore[assignment]
    connector.Connection = ExitingConnection  # type: ignore[misc, attr-defined]
    open_engine(url, schema=schema, auto_migrate=True).migrate()


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            migrate(*line.split())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
