"""Replaces secret values in arguments and results, which it finds by the names of their keys. Pure."""

import re
from collections.abc import Sequence
from fnmatch import translate

from holdfast.jobs.job import Json

HIDDEN = "[redacted]"
_DEEPEST = 200


class Redaction:
    """Redacts values by patterns of keys, in any case, with `-` taken for `_`."""

    def __init__(self, patterns: Sequence[str]) -> None:
        joined = "|".join(translate(pattern.lower()) for pattern in patterns)
        self._pattern = re.compile(joined or "(?!)")

    def hides(self, key: str) -> bool:
        return self._pattern.match(key.lower().replace("-", "_")) is not None

    def __call__(self, data: Json, depth: int = 0) -> Json:
        if depth > _DEEPEST:
            return HIDDEN
        if isinstance(data, dict):
            return {
                key: HIDDEN if self.hides(key) and value is not None else self(value, depth + 1)
                for key, value in data.items()
            }
        if isinstance(data, list):
            return [self(one, depth + 1) for one in data]
        return data
