"""What is measured, in the words of both sides: raw SQL and Holdfast do the same five things."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

QUEUE = "default"
TYPE = "send"
WORKER = "bench-1-a"
RESULT = '{"sent":true}'
KEEP = 7 * 86400.0  # seconds that finished jobs stay
SMALL, LARGE = 200, 20_000  # bytes of a payload, about


class Store(Protocol):
    """One side, on a database of its own."""

    def make(self, count: int, size: int = SMALL) -> Sequence[Any]:
        """New jobs, as ready as this side's callers have them."""

    def insert_one(self, item: Any) -> None: ...

    def insert_many(self, items: Sequence[Any]) -> None: ...

    def claim(self, limit: int) -> Sequence[Any]:
        """Take the best pending jobs, with their payloads."""

    def finish(self, held: Sequence[Any]) -> None:
        """Complete claimed jobs, with a result."""

    def completed(self) -> int:
        """How many jobs are completed, by the database's word."""

    def close(self) -> None: ...


class Place(Protocol):
    """Where databases come from: each one new, with the tables that the library's migrate() made,
    and gone at the end of the `with`."""

    name: str

    def raw(self) -> AbstractContextManager[Store]: ...

    def ours(self) -> AbstractContextManager[Store]: ...


def arguments(number: int, size: int) -> dict[str, Any]:
    """The arguments of a job whose payload is about `size` bytes of JSON."""
    return {
        "number": number,
        "address": f"person{number}@example.org",
        "text": "x" * max(0, size - 70),
    }
