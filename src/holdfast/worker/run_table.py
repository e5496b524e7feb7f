"""What has begun in a worker process, in a page of memory that it shares with its supervisor.

The worker writes a run here before its handler begins, and clears it when the handler has ended. The
supervisor reads it without asking the process, which may be frozen by a handler that holds the GIL,
stopped, or dead. This is the one source of "which runs had begun" for timeouts and for deaths.
"""

import mmap
import os
import struct
import tempfile
from typing import NamedTuple
from uuid import UUID

from holdfast.job import Claim

SLOTS = 16_384  # more runs at the same time are not written down
_RECORD = struct.Struct("=Bxxxxxxx16sqdd")  # 1: in use; id, claim number, started, deadline
_DEADLINE = struct.Struct("=d")
_NO_DEADLINE = float("inf")


class Begun(NamedTuple):
    """A run whose handler has begun and not ended. Times are of the monotonic clock, which all
    processes of a machine share."""

    claim: Claim
    started: float
    deadline: float | None


class RunTable:
    """One worker process's page. Its threads write it; others read it at any moment."""

    def __init__(self, file: int) -> None:
        """`file`: a descriptor from `create`, which stays the caller's."""
        self._page = mmap.mmap(file, SLOTS * _RECORD.size)
        self._free = list(range((SLOTS - 1) * _RECORD.size, -1, -_RECORD.size))

    @staticmethod
    def create() -> int:
        """A descriptor of a new page: memory, or a file without a name where there is none."""
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("holdfast-runs", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile() as unnamed:
                file = os.dup(unnamed.fileno())
        os.ftruncate(file, SLOTS * _RECORD.size)
        return file

    def begin(self, claim: Claim, started: float, deadline: float | None) -> int:
        """Write down a run; the place to clear when it has ended. -1: the page is full."""
        try:
            place = self._free.pop()
        except IndexError:
            return -1
        end = _NO_DEADLINE if deadline is None else deadline
        # The mark that it is in use comes last: a reader never takes half a record for a whole one.
        _RECORD.pack_into(
            self._page,
            place,
            0,
            bytes.fromhex(claim.id.replace("-", "")),
            claim.claim_no,
            started,
            end,
        )
        self._page[place] = 1
        return place

    def forget_deadline(self, place: int) -> None:
        """The run goes on, and may take as long as it takes."""
        if place >= 0:
            _DEADLINE.pack_into(self._page, place + _RECORD.size - _DEADLINE.size, _NO_DEADLINE)

    def end(self, place: int) -> None:
        if place >= 0:
            self._page[place] = 0
            self._free.append(place)

    def runs(self) -> list[Begun]:
        """What has begun, as far as the process has written."""
        found = []
        for place in range(0, len(self._page), _RECORD.size):
            if self._page[place] != 1:
                if not any(self._page[place : place + _RECORD.size]):
                    break  # never used, and places are used from the beginning on
                continue
            _, id, claim_no, started, deadline = _RECORD.unpack_from(self._page, place)
            if self._page[place] == 1:
                found.append(
                    Begun(
                        Claim(str(UUID(bytes=id)), claim_no),
                        started,
                        None if deadline == _NO_DEADLINE else deadline,
                    )
                )
        return found

    def close(self) -> None:
        self._page.close()
