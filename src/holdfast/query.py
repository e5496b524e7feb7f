"""Which jobs, in words."""

from typing import Any


def parse(text: str) -> dict[str, Any]:
    return {}
