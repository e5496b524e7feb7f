"""Jobs and others as they are shown: without what the caller may not see."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from holdfast.fields import FIELDS, iso, job_fields, plain
from holdfast.job import Body, Job
from holdfast.web.permissions import Identity, Permission
from holdfast.web.redaction import Redaction

_BODIES = ("payload", "result")
_LISTED = tuple(name for name in FIELDS if name not in _BODIES)
_NO_BODY = Body("{}")


def listed(job: Job) -> dict[str, Any]:
    """Without payload and result, which lists do not read."""
    whole = job_fields(job if job.body is not None else _with_no_body(job))
    for name in _BODIES:
        del whole[name]
    return whole | {"cancel_requested": job.cancel_requested}


def _with_no_body(job: Job) -> Job:
    from dataclasses import replace

    return replace(job, body=_NO_BODY)


def shown(job: Job, me: Identity, redact: Redaction) -> dict[str, Any]:
    """A whole job, as this caller may see it."""
    fields = listed(job)
    hidden: list[str] = []
    if me.may(Permission.JOBS_PAYLOAD):
        fields |= {"payload": redact(job.payload), "result": redact(job.result)}
    else:
        fields |= dict.fromkeys(_BODIES)
        hidden = list(_BODIES)
    return fields | {"hidden": hidden}


def as_json(value: Any) -> Any:
    """Values as JSON takes them: dataclasses by their fields, moments as text, enums as values."""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {name: as_json(one) for name, one in asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(as_json(key)): as_json(one) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: as_json(one) for name, one in value._asdict().items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(one) for one in value]
    return value


__all__ = ["as_json", "iso", "listed", "plain", "shown"]
