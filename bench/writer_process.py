"""One of several processes that write to one file: `python -m bench.writer_process URL SECONDS`."""

import json
import sys
import time
from collections.abc import Callable

from bench.holdfast_store import register
from bench.job_store import SMALL, arguments
from holdfast import Holdfast


def main() -> None:
    url, seconds = sys.argv[1], float(sys.argv[2])
    with Holdfast(url) as app:
        task = register(app)
        task.enqueue(**arguments(0, SMALL))
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(write(task.enqueue, seconds)))


def write(enqueue: Callable[..., object], seconds: float) -> dict[str, float]:
    """Enqueue single jobs until the time is up; returns their number and the longest duration."""
    commits, longest = 0, 0.0
    begin = before = time.perf_counter()
    while before - begin < seconds:
        enqueue(**arguments(commits, SMALL))
        after = time.perf_counter()
        longest = max(longest, after - before)
        before = after
        commits += 1
    return {"commits": commits, "longest": longest}


if __name__ == "__main__":
    main()
