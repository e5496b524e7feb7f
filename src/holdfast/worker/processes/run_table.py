"""The table of runs that have begun in a worker process, in memory that it shares with its supervisor.

The worker writes a run here before its handler begins, and clears it when the handler has ended. The
supervisor reads the table without asking the process, which may be frozen by a handler that holds the
GIL, stopped, or dead. By this table alone it decides which runs are past their deadline, and which runs
had begun in a process that died.
"""

import mmap
import os
import re
import struct
import tempfile
from typing import NamedTuple
from uuid import UUID

from holdfast.jobs.job import Claim

SLOTS = 16_384  # more runs at the same time are not recorded
_RECORD = struct.Struct("=16sqdd")  # id, claim number, started, deadline
# The page begins with a byte for each place. A byte is written in one step, a record is not: packing
# fills it with zeros first. So no record is changed while its byte says that it is in use.
_FREE, _DEADLINE, _NO_DEADLINE = 0, 1, 2
_USED = re.compile(b"[\x01\x02]")
_SIZE = SLOTS + SLOTS * _RECORD.size


def _at(place: int) -> int:
    return SLOTS + place * _RECORD.size


class Begun(NamedTuple):
    """A run whose handler has begun and not ended. Times are of the monotonic clock, which all
    processes of a machine share."""

    claim: Claim
    started: float
    deadline: float | None

    def timeout_error(self) -> str:
        """Return the error of a run whose process could not record its timeout; the same text as
        `Execution.timed_out` writes."""
        return f"TimeoutError: timed out after {(self.deadline or self.started) - self.started:g} s"


class RunTable:
    """The runs of one worker process. Its threads write the page; other processes read it at any
    time."""

    def __init__(self, file: int) -> None:
        """`file`: a descriptor from `create`, which stays the caller's."""
        self._page = mmap.mmap(file, _SIZE)
        self._free = list(range(SLOTS - 1, -1, -1))

    @staticmethod
    def create() -> int:
        """Return the descriptor of a new page: in memory, or where the system has no memory files, in a
        file without a name."""
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("holdfast-runs", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile() as unnamed:
                file = os.dup(unnamed.fileno())
        os.ftruncate(file, _SIZE)
        return file

    def begin(self, claim: Claim, started: float, deadline: float | None) -> int:
        """Record a run; return the place to clear when it has ended. -1: the page is full."""
        try:
            place = self._free.pop()
        except IndexError:
            return -1
        id = bytes.fromhex(claim.id.replace("-", ""))
        _RECORD.pack_into(self._page, _at(place), id, claim.claim_no, started, deadline or 0.0)
        self._page[place] = _NO_DEADLINE if deadline is None else _DEADLINE
        return place

    def forget_deadline(self, place: int) -> None:
        """Let a run have no deadline any more."""
        if place >= 0:
            self._page[place] = _NO_DEADLINE

    def end(self, place: int) -> None:
        if place >= 0:
            self._page[place] = _FREE
            self._free.append(place)

    def runs(self) -> list[Begun]:
        """Return the runs that have begun and not ended."""
        found = []
        for used in _USED.finditer(self._page[:SLOTS].rstrip(b"\0")):
            at = _at(used.start())
            record = self._page[at : at + _RECORD.size]
            mark = self._page[used.start()]
            # Read twice: the place may have been given to another run in between.
            if mark == _FREE or record != self._page[at : at + _RECORD.size]:
                continue
            id, claim_no, started, deadline = _RECORD.unpack(record)
            claim = Claim(str(UUID(bytes=id)), claim_no)
            found.append(Begun(claim, started, deadline if mark == _DEADLINE else None))
        return found
