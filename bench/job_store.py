"""The measured operations, which hand-written SQL and Holdfast both implement."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

QUEUE = "default"
TYPE = "send"
WORKER = "bench-1-a"
RESULT = '{"sent":true}'
KEEP = 7 * 86400.0  # seconds that finished jobs stay
SMALL, LARGE = 200, 20_000  # bytes of a payload, about


class JobStore(Protocol):
    """One implementation, on a database of its own."""

    def make(self, count: int, size: int = SMALL) -> Sequence[Any]:
        """Make new jobs in the form that `insert_one` and `insert_many` take."""

    def insert_one(self, item: Any) -> None: ...

    def insert_many(self, items: Sequence[Any]) -> None: ...

    def claim(self, limit: int) -> Sequence[Any]:
        """Claim the next pending jobs, with their payloads."""

    def finish(self, held: Sequence[Any]) -> None:
        """Complete claimed jobs, with a result."""

    def completed(self) -> int:
        """Count the completed jobs in the database."""

    def close(self) -> None: ...


class Databases(Protocol):
    """Makes new databases with Holdfast's tables, dropped at the end of the `with`."""

    name: str

    def raw(self) -> AbstractContextManager[JobStore]: ...

    def holdfast(self) -> AbstractContextManager[JobStore]: ...


def arguments(number: int, size: int) -> dict[str, Any]:
    """The arguments of a job whose payload is about `size` bytes of JSON."""
    return {
        "number": number,
        "address": f"person{number}@example.org",
        "text": "x" * max(0, size - 70),
    }
