"""Responses as JSON: jobs and other values, without what the caller may not see."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any

from starlette.responses import JSONResponse

from holdfast.jobs.job import Job
from holdfast.jobs.job_json import iso, job_fields
from holdfast.web.security.permissions import Identity, Permission
from holdfast.web.security.redaction import Redaction

_BODIES = ("payload", "result")
_PLAIN = frozenset({str, int, float, bool, type(None)})


class Json(JSONResponse):
    """ASCII, since a string may hold half of a surrogate pair; integers of any size are exact."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def listed(job: Job) -> dict[str, Any]:
    """Return the fields of a job without payload and result, which lists do not read."""
    return job_fields(job, bodies=False) | {"cancel_requested": job.cancel_requested}


def shown(job: Job, me: Identity, redact: Redaction) -> dict[str, Any]:
    """Return all fields of a job that this caller may see; the others are None."""
    fields = listed(job)
    if me.may(Permission.JOBS_PAYLOAD):
        bodies = {"payload": redact(job.payload), "result": redact(job.result)}
        return fields | bodies | {"hidden": []}
    return fields | dict.fromkeys(_BODIES) | {"hidden": [*_BODIES]}


def as_json(value: Any) -> Any:
    """Return a value as JSON has it: dataclasses by their fields, times as text, enums as values."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is datetime:
        return iso(value)
    names = _names(kind)
    if names is not None:
        found = {name: getattr(value, name) for name in names}
        # A day of figures is about ten thousand plain values: do not call a function for each.
        return {name: one if type(one) in _PLAIN else as_json(one) for name, one in found.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(as_json(key)): as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(one) for one in value]
    return value


@lru_cache(maxsize=200)
def _names(kind: Any) -> tuple[str, ...] | None:
    """Return the names of a dataclass's or a named tuple's fields; None for any other class."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return getattr(kind, "_fields", None)
