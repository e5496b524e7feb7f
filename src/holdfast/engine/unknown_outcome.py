"""Inserts whose outcome is unknown, because the connection broke before the answer to the commit came.

Ids are made by the client, and an insert leaves out jobs whose id exists already. So an insert can be
sent again until the database answers: a job is added once, whichever of the attempts was committed.
"""

import time
from collections.abc import Callable, Sequence

from holdfast.errors import DatabaseBusy, DatabaseUnavailable, OutcomeUnknown
from holdfast.jobs.job import Job, NewJob

_SHORTEST, _LONGEST = 0.05, 1.0  # seconds between two attempts


def may_double(jobs: Sequence[NewJob]) -> bool:
    """Return whether sending these jobs again could add a second job: the first attempt may have
    changed the unfinished job with the key, and that job may have finished since."""
    return any(job.key is not None and job.on_conflict in ("replace", "debounce") for job in jobs)


def insert_again(
    jobs: Sequence[NewJob],
    insert: Callable[[], list[Job]],
    failure: Exception,
    deadline: float,
    timeout: float,
) -> list[Job]:
    """Insert jobs after a first `failure`, until the database tells. Raises OutcomeUnknown, with the
    ids, if it does not before the deadline, `timeout` seconds after the first attempt began, or if an
    attempt is refused or could double a job."""
    told = f"the database did not tell within {timeout:g} s whether that was committed"
    if not (repeats := not may_double(jobs)):
        told = (
            "on_conflict='replace' and 'debounce' are not sent again: they could add a second job"
        )
    pause = _SHORTEST
    while repeats and time.monotonic() + pause < deadline:
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)
        try:
            return insert()
        except (DatabaseBusy, DatabaseUnavailable) as problem:
            failure = problem
        except (
            Exception
        ) as problem:  # whatever the repeat raises, the first attempt may be committed
            failure, repeats = problem, False
            told = "a repeat, which tells whether that was committed, was refused"
    ids = [job.id for job in jobs]
    words = f"job {ids[0]} was" if len(ids) == 1 else f"{len(ids)} jobs were"
    raise OutcomeUnknown(
        f"the connection broke while {words} written, and {told} ({failure}): look for the ids that "
        "this error has, or use an idempotency_key= and enqueue again",
        ids,
    ) from failure
