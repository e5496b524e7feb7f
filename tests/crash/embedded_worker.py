"""An application with an embedded worker, which runs until it is killed."""

import threading

from tests.crash.tasks import app


def main() -> None:
    with app.worker(queues="default=10"):
        threading.Event().wait()


if __name__ == "__main__":
    main()
