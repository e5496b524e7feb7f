"""An application with a worker inside: `python -m tests.crash.host` runs it until it is killed."""

import threading

from tests.crash.tasks import app


def main() -> None:
    with app.worker(queues="default=10"):
        threading.Event().wait()


if __name__ == "__main__":
    main()
