"""The application of `bench.compare_versions`: jobs that do nothing. The first and the last record
the processor time of their process. It uses only what every version has."""

import os
import sys
import time

from holdfast import Holdfast

app = Holdfast(auto_migrate=True)
LAST = int(os.environ.get("BENCH_LAST", "-1"))


def note(number: int) -> None:
    if number in (0, LAST):
        with open(os.environ["BENCH_NOTES"], "a") as notes:
            notes.write(f"{time.process_time()}\n")


@app.task(name="def")
def plain(number: int) -> None:
    note(number)


@app.task(name="async")
async def coroutine(number: int) -> None:
    note(number)


def fill(kind: str, count: int) -> None:
    task = app.tasks[kind]
    for begin in range(0, count, 1000):
        task.enqueue_many([{"number": n} for n in range(begin, min(begin + 1000, count))])


if __name__ == "__main__":
    with app:
        fill(sys.argv[1], int(sys.argv[2]))
