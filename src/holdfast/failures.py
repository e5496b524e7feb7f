"""What goes wrong."""

from typing import Any


def read_errors(engine: Any, *, statuses: Any, type: str | None = None) -> Any:
    return {"groups": [], "looked_at": 0, "complete": True, "since": None}


def members(
    engine: Any, group: str | None, *, statuses: Any, after: str | None, limit: int
) -> tuple[list[str], str | None]:
    return [], None
