"""A program with a worker: a job every second, a job that fails and is retried, and rate limits. It
prints a line for each run, until its standard input is closed."""

import sys

from holdfast import Backoff, Holdfast, Limit


def main() -> None:
    url, schema = sys.argv[1:]
    app = Holdfast(url, schema=schema, auto_migrate=True, backoff=Backoff(delay=1, multiplier=1))

    @app.task(every="1s")
    def interval() -> None:
        print("interval", flush=True)

    @app.task(rate="2/s")
    def whole() -> None:
        print("whole", flush=True)

    @app.task(rate=Limit(rate="2/s", per="tenant"))
    def keyed(tenant: str) -> None:
        print("keyed", flush=True)

    @app.task(max_attempts=1000)
    def failing() -> None:
        print("failing", flush=True)
        raise RuntimeError("again")

    whole.enqueue_many([{}] * 1000)
    keyed.enqueue_many([{"tenant": "a"}] * 1000)
    failing.enqueue()
    with app.worker(grace=1.0):
        sys.stdin.read()
    app.close()


if __name__ == "__main__":
    main()
