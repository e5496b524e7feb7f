"""UUIDv7: ids that sort by the time at which they were made.

The ids of a process sort in the order in which it made them. The client makes them before the insert,
so that an insert sent again after a lost connection adds no second job.
"""

import os
import random
import threading
import time
from datetime import datetime
from uuid import UUID

from holdfast.core.clock import to_microseconds
from holdfast.errors import InvalidInput

# Seeded by the system, in each process anew: ids must be unique, not secret, and this is quicker.
_random = random.Random()  # noqa: S311
_lock = threading.Lock()
_last = 0  # the 60-bit sequence (48 bits of milliseconds, 12 of counter) given out last


def _forked() -> None:
    """In a forked child, use another random state and a lock that no thread of the parent holds."""
    global _lock
    _lock = threading.Lock()
    _random.seed()


os.register_at_fork(after_in_child=_forked)


def new_id() -> str:
    """Return a new UUIDv7. The 12 bits after the version count within a millisecond and carry over into
    the next one, so the ids of a process sort in the order in which they were made."""
    global _last
    with _lock:
        _last = sequence = max(time.time_ns() // 1_000_000 << 12, _last + 1)
    tail = _random.getrandbits(62) | 0x8000_0000_0000_0000
    text = f"{sequence >> 12:012x}7{sequence & 0xFFF:03x}{tail:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def floor_id(moment: datetime) -> str:
    """Return the smallest id of a time: a bound for searches by time."""
    milliseconds = max(0, to_microseconds(moment) // 1000)
    return str(UUID(int=milliseconds << 80))


def parse_id(value: object, what: str = "a job id: ids are UUIDs, as Job.id gives them") -> str:
    """Return an id as it is stored, from a string or a UUID. Raises InvalidInput, which says that the
    value is not `what`."""
    try:
        return str(value if isinstance(value, UUID) else UUID(str(value)))
    except ValueError:
        raise InvalidInput(f"{str(value)[:80]!r} is not {what}") from None
