"""One of several processes that write to one file: `python -m bench.writer URL SECONDS`."""

import json
import sys
import time
from collections.abc import Callable

from bench.ours import register
from bench.store import SMALL, arguments
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
    """Single enqueues until the time is up: how many, and the longest that one of them took."""
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
