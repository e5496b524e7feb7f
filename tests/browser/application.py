"""The application of the browser tests: jobs of every kind, and some that wait for a gate."""

import threading
from datetime import datetime
from typing import Any, Literal

from holdfast import Context, Discard, Holdfast
from tests.conftest import Database


class Gates:
    """Events that hold jobs until a test sets them."""

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


def make_application(database: Database, **options: Any) -> Holdfast:
    # Not much shorter: beside two browsers a worker may miss heartbeats for a second, and would stop
    # its jobs.
    app = database.app(heartbeat=2, **options)
    _quick(app)
    _slow(app)
    _broken(app)
    app.migrate()
    return app


def _quick(app: Holdfast) -> None:
    @app.task
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @app.task
    def echo(value: Any = None) -> Any:
        """Gives back what it got."""
        return value

    @app.task
    def order(
        customer: str,
        amount: int,
        express: bool = False,
        kind: Literal["book", "film"] = "book",
        due: datetime | None = None,
        tags: list[str] = [],  # noqa: B006 - only read
    ) -> str:
        """Takes an order."""
        return f"{amount} {kind} for {customer}{', express' if express else ''}"

    @app.task(every="1h")
    def tidy() -> str:
        """Looks after things."""
        return "tidy"

    @app.task(concurrency=1)
    def report(year: int) -> int:
        return year

    del add, echo, order, tidy, report


def _slow(app: Holdfast) -> None:
    @app.task(queue="media", max_attempts=1)
    def render(ctx: Context, title: str, gate: str = "render") -> dict[str, Any]:
        """Goes halfway, waits for its gate, and ends."""
        ctx.progress(50, f"rendering {title}")
        _wait(ctx, gate)
        return {"title": title, "frames": 24}

    @app.task(queue="media", max_attempts=1)
    def climb(ctx: Context, gate: str) -> None:
        """One step for each gate."""
        for step in (20, 60):
            ctx.progress(step, f"at {step}")
            _wait(ctx, f"{gate}-{step}")

    del render, climb


def _wait(ctx: Context, gate: str) -> None:
    """Until the gate opens, or the job is cancelled."""
    for _ in range(600):
        if GATES[gate].wait(0.1) or ctx.cancelled:
            return
    raise TimeoutError(f"the gate was never opened: {gate}")


def _broken(app: Holdfast) -> None:
    @app.task(max_attempts=1)
    def crash(reason: str = "boom") -> None:
        raise RuntimeError(f"cannot go on: {reason}")

    @app.task(max_attempts=3)
    def refuse(name: str) -> None:
        raise Discard(f"no such customer {name!r}")

    @app.task(max_attempts=5)
    def stumble(reason: str = "later") -> None:
        raise ConnectionError(f"try again {reason}")

    @app.task(max_attempts=1)
    def mend(gate: str) -> str:
        """Fails until its gate is open."""
        if not GATES[gate].is_set():
            raise LookupError(f"nothing behind {gate}")
        return "mended"

    del crash, refuse, stumble, mend
