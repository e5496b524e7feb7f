"""What the sides of a comparison have in common, with nothing but the standard library:

    setup             make the tables
    work              run a worker until the process is ended
    fill COUNT        add so many no-op jobs that no worker sees yet; print the last one's id, and
                      let them be seen when a line comes in
    send COUNT SEED   single jobs with pauses between them, whose handler notes how late it is

The database is in BENCH_URL; BENCH_NOTES is the file for the handler's notes.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator

SHORTEST, LONGEST = 0.005, 0.030  # seconds between two jobs of `send`

Verb = Callable[..., None]


def run(**verbs: Verb) -> None:
    """Do what the command line says, and say when it is done."""
    verbs[sys.argv[1]](*map(int, sys.argv[2:]))
    print("done", flush=True)


def url() -> str:
    return os.environ["BENCH_URL"]


def ready(last: object) -> None:
    """The jobs are there: wait for the word to let them be seen."""
    print(last, flush=True)
    if not sys.stdin.readline():
        raise SystemExit(1)


def pauses(count: int, seed: int) -> Iterator[None]:
    """The same moments for each side."""
    chance = random.Random(seed)
    for _ in range(count):
        time.sleep(chance.uniform(SHORTEST, LONGEST))
        yield


def note(sent: int) -> None:
    """The handler's first act. `sent`, the moment before the enqueue, also names the job. All clocks
    are this machine's."""
    _write(b"begun", sent)


def acked(sent: int) -> None:
    """The enqueue has returned: the job is in the database."""
    _write(b"acked", sent)


def _write(what: bytes, sent: int) -> None:
    line = b"%s %d %d\n" % (what, sent, time.time_ns())
    notes = os.open(os.environ["BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(notes, line)
    os.close(notes)
