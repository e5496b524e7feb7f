"""Watches the whole suite for code that opens a SQLite file without SQLite.

One `open()` and `close()` of the database drops every POSIX lock that SQLite holds on it in this
process, and with them the protection from corruption. `sqlite3` itself raises no such event. When
pytest removes a folder (`shutil.rmtree`), only folders are opened, some of them with such a name.
"""

import os
import sys
import traceback

SUFFIXES = (".db", ".db-wal", ".db-shm")
opened: list[str] = []


def install() -> None:
    sys.addaudithook(_hook)


def _hook(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and isinstance(args[0], str | bytes | os.PathLike):
        path = os.fsdecode(args[0])
        if path.endswith(SUFFIXES) and sys._getframe(1).f_code.co_name != "_rmtree_safe_fd":
            opened.append(f"{path}\n{''.join(traceback.format_stack(limit=8))}")
