"""A program with a worker for tasks with fair keys. It ends when `join` returns."""

import sys

from holdfast import Holdfast, Limit


def make(app: Holdfast) -> None:
    @app.task(concurrency=Limit(1, per="tenant", fair=True))
    def one(tenant: str) -> None: ...

    @app.task(concurrency=Limit(2, rate="100/s", per="tenant", fair=True))
    def paced(tenant: str) -> None: ...

    @app.task(concurrency=[Limit(2, per="tenant", fair=True), Limit(3)])
    def beside(tenant: str) -> None: ...


def main() -> None:
    url, schema, slots = sys.argv[1:]
    with Holdfast(url, schema=schema) as app:
        make(app)
        with app.worker(concurrency=int(slots)) as worker:
            print("ready", flush=True)
            sys.stdin.readline()
            assert worker.join(120.0)
        left = [job.status.value for job in app.jobs.search(limit=1000) if not job.completed_at]
    # `join` does not wait for what another worker still runs.
    assert set(left) <= {"running"}, left


if __name__ == "__main__":
    main()
