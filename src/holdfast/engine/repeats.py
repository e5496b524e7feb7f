"""Inserts whose outcome is unknown, because the connection broke before the answer to the commit came.

Ids are made by the client, and an insert leaves out what has an id that is there already. So it can be
sent again until the database tells: a job is added once, whichever of the tries was committed.
"""

import time
from collections.abc import Callable, Sequence

from holdfast.errors import DatabaseBusy, DatabaseUnavailable, OutcomeUnknown
from holdfast.job import Job

_SHORTEST, _LONGEST = 0.05, 1.0  # seconds between two tries


def until_known(
    insert: Callable[[float], list[Job]],
    again: Callable[[float], list[Job]],
    ids: Sequence[str],
    timeout: float,
) -> list[Job]:
    """Return what `insert` does, or `again` after it: both are called with the moment, by the monotonic
    clock, at which they have to end. Raises OutcomeUnknown, with the ids, if the
    database does not tell within `timeout` seconds, or if a repeat cannot be made; any other error
    is one of `insert`, and certain."""
    deadline = time.monotonic() + timeout
    try:
        return insert(deadline)
    except OutcomeUnknown as problem:
        failure: Exception = problem
    told = f"the database did not tell within {timeout:g} s whether that was committed"
    pause = _SHORTEST
    while time.monotonic() + pause < deadline:
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)
        try:
            return again(deadline)
        except (DatabaseBusy, DatabaseUnavailable) as problem:
            failure = problem
        except (
            Exception
        ) as problem:  # another repeat would not differ, and the first may be written
            failure = problem
            told = "a repeat, which tells whether that was committed, was refused"
            break
    jobs = f"job {ids[0]} was" if len(ids) == 1 else f"{len(ids)} jobs were"
    raise OutcomeUnknown(
        f"the connection broke while {jobs} written, and {told} ({failure}): look for the ids that "
        "this error has, or use an idempotency_key= and enqueue again",
        ids,
    ) from failure
