"""The application behind the browser's tests: jobs of every kind, and some that wait to be let go."""

import threading
from typing import Any

from holdfast import Context, Discard, Holdfast
from tests.conftest import Database


class Gates:
    """What holds jobs until a test opens it."""

    def __init__(self) -> None:
        self._gates: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> threading.Event:
        with self._lock:
            return self._gates.setdefault(name, threading.Event())

    def open_all(self) -> None:
        with self._lock:
            for gate in self._gates.values():
                gate.set()


GATES = Gates()


def make_application(database: Database) -> Holdfast:
    app = database.app(heartbeat=0.5)

    @app.task
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @app.task(queue="media", max_attempts=1)
    def render(ctx: Context, title: str, gate: str = "render") -> dict[str, Any]:
        """Goes halfway, waits for its gate, and ends."""
        ctx.progress(50, f"rendering {title}")
        if not GATES[gate].wait(60):
            raise TimeoutError("nobody opened the gate")
        return {"title": title, "frames": 24}

    @app.task(max_attempts=1)
    def crash(reason: str = "boom") -> None:
        raise RuntimeError(f"cannot go on: {reason}")

    @app.task(max_attempts=3)
    def refuse(name: str) -> None:
        raise Discard(f"no such customer {name!r}")

    @app.task(every="1h")
    def tidy() -> str:
        """Looks after things."""
        return "tidy"

    @app.task(concurrency=1)
    def report(year: int) -> int:
        return year

    del add, render, crash, refuse, tidy, report
    app.migrate()
    return app
