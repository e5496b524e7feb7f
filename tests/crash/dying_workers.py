"""Workers that will be killed, one process for each queue, forked after the imports to start fast:
`python -m tests.crash.dying_workers first second`."""

import importlib
import os
import sys
import time

import psycopg  # noqa: F401 - before the forks

import holdfast.worker  # noqa: F401 - before the forks


def work(queue: str, parent: int) -> None:
    app = importlib.import_module(
        "tests.crash.ledger_tasks"
    ).app  # not before: it is for one process
    with app.worker(queues={queue: 1}):
        while os.getppid() == parent:
            time.sleep(0.1)


def main() -> None:
    parent = os.getpid()
    for queue in sys.argv[1:]:
        if os.fork() == 0:
            work(queue, parent)
            os._exit(0)
    for _ in sys.argv[1:]:
        os.wait()


if __name__ == "__main__":
    main()
