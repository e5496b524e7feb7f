"""The commands that each contender implements, with only the standard library:

    setup             make the tables
    work              run a worker until the process is ended
    fill COUNT        add no-op jobs that workers cannot see yet; print the last id, and make them
                      visible when a line is read from stdin
    send COUNT SEED   enqueue single jobs with pauses; the handler records its start

The database is in BENCH_URL; BENCH_NOTES is the file for the handler's notes.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator

SHORTEST, LONGEST = 0.005, 0.030  # seconds between two jobs of `send`

Command = Callable[..., None]


def run(**commands: Command) -> None:
    """Run the command of the command line, and print "done"."""
    commands[sys.argv[1]](*map(int, sys.argv[2:]))
    print("done", flush=True)


def url() -> str:
    return os.environ["BENCH_URL"]


def ready(last: object) -> None:
    """Print the last id, and wait for a line before the jobs become visible."""
    print(last, flush=True)
    if not sys.stdin.readline():
        raise SystemExit(1)


def pauses(count: int, seed: int) -> Iterator[None]:
    """Sleep between jobs, equally for each contender."""
    rng = random.Random(seed)
    for _ in range(count):
        time.sleep(rng.uniform(SHORTEST, LONGEST))
        yield


def note(sent: int) -> None:
    """Record the start of a handler. `sent`, the time before the enqueue, identifies the job."""
    _write(b"begun", sent)


def acked(sent: int) -> None:
    """Record that the enqueue has returned, so the job is committed."""
    _write(b"acked", sent)


def _write(what: bytes, sent: int) -> None:
    line = b"%s %d %d\n" % (what, sent, time.time_ns())
    notes = os.open(os.environ["BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(notes, line)
    os.close(notes)
