"""Responses as JSON: jobs and other values, without what the caller may not see."""

import json
from dataclasses import fields
from datetime import datetime
from typing import Any

from starlette.responses import JSONResponse

from holdfast.jobs.job import Job
from holdfast.jobs.job_json import iso, job_fields
from holdfast.web.security.permissions import Identity, Permission
from holdfast.web.security.redaction import Redaction

_BODIES = ("payload", "result")


class Json(JSONResponse):
    """Dataclasses by their fields, times as text. ASCII, since a string may hold half of a surrogate
    pair; integers of any size are exact."""

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, allow_nan=False, default=_plain, separators=(",", ":"))
        return text.encode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    return {field.name: getattr(value, field.name) for field in fields(value)}


def listed(job: Job) -> dict[str, Any]:
    """Return the fields of a job without payload and result, which lists do not read."""
    return job_fields(job, bodies=False) | {"cancel_requested": job.cancel_requested}


def shown(job: Job, me: Identity, redact: Redaction) -> dict[str, Any]:
    """Return all fields of a job that this caller may see; the others are None."""
    seen = listed(job)
    if me.may(Permission.JOBS_PAYLOAD):
        bodies = {"payload": redact(job.payload), "result": redact(job.result)}
        return seen | bodies | {"hidden": []}
    return seen | dict.fromkeys(_BODIES) | {"hidden": [*_BODIES]}
