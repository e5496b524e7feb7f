"""Writes finished jobs to files before they are deleted: JSON lines, compressed, in a folder.

A file for each process and day. Every batch is a gzip member of its own, on the disk before the jobs
are deleted: `zcat` reads them one after the other. A pruner that dies in between leaves its jobs in the
database, and another one writes them again: duplicate lines have the same id.
"""

import gzip
import json
import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any


class Archive:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._token = secrets.token_hex(4)  # process ids are used again, files must not be

    def path(self, day: date) -> Path:
        host = socket.gethostname().replace("/", "-")
        return self._folder / f"jobs-{day.isoformat()}-{host}-{os.getpid()}-{self._token}.jsonl.gz"

    def write(self, day: date, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write all rows to the disk, or raise and leave none in the file."""
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.path(day)
        is_new = not path.exists()
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            _append(file, gzip.compress(lines.encode()))
        finally:
            os.close(file)
        if is_new:
            _sync_folder(self._folder)


def _append(file: int, data: bytes) -> None:
    size = os.fstat(file).st_size
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
    except BaseException:
        os.ftruncate(file, size)  # half a member would hide all that follow it
        raise


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
