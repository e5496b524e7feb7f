"""What a worker keeps in memory: of a job that is over, nothing."""

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from holdfast import Holdfast

LARGE = 500_000  # bytes of each payload, and of each result


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_a_worker_keeps_no_memory_of_finished_jobs(app: Holdfast, traced: None) -> None:
    """Counted by what Python has allocated: what the process has of the system depends on malloc. The
    last job of each of the four slots may still be at hand."""

    @app.task
    def echo(text: str) -> str:
        return text

    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    with app.worker(concurrency=4) as worker:
        echo.enqueue_many([{"text": "x" * LARGE}] * 4)
        worker.join()
        before = held()
        for _ in range(10):
            echo.enqueue_many([{"text": "x" * LARGE}] * 4)
            worker.join()
        grown = held() - before
    assert grown < 4 * 2 * LARGE + 1_000_000, (
        f"{grown / 1e6:.1f} MB are kept of 40 jobs with 1 MB each"
    )
