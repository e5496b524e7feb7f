"""Answers as JSON that survive anything that a job may hold."""

import json
from typing import Any

from starlette.responses import JSONResponse


class Json(JSONResponse):
    """ASCII, since a string may hold half of a surrogate pair; integers of any size are exact."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
