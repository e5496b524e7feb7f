"""Signed links: who has one may follow one job, and nothing else, until it expires. They are for pages
of people whom the server does not know: the progress bar of somebody's own job.

A link is made with the database's own secret, and is written down nowhere."""

import base64
import hashlib
import hmac
import json
from datetime import datetime
from uuid import UUID

from starlette.datastructures import QueryParams
from starlette.types import Scope

from holdfast.access import Access
from holdfast.app import Holdfast
from holdfast.core.duration import Duration, seconds
from holdfast.core.ids import parse_id
from holdfast.core.records import value
from holdfast.errors import InvalidInput
from holdfast.jobs.job import Job

SECRET = "links"  # noqa: S105 -- its name
EVENTS = "/api/v1/events"
_LONGEST = 500


@value
class Link:
    job: str
    expires: float  #: seconds since 1970
    result: bool  #: whether the job's result and its error are told, too


def make_link(
    app: Holdfast, job: Job | UUID | str, *, expires: Duration = "1h", result: bool = False
) -> str:
    """The text by which whoever has it may follow this job, until it expires. `result`: they are also
    told what it returned, and with which error it failed."""
    life = seconds(expires, what="expires")
    if life == 0:
        raise InvalidInput("expires=0: give a time from now on, such as '1h'")
    id = job.id if isinstance(job, Job) else parse_id(job)
    told = {"job": id, "exp": round(app.clock.now().timestamp() + life), "result": result}
    body = _text(json.dumps(told, separators=(",", ":")).encode())
    return f"{body}.{_signature(Access(app).secret(SECRET), body)}"


def follow_link(
    app: Holdfast,
    job: Job | UUID | str,
    *,
    base: str = "",
    expires: Duration = "1h",
    result: bool = False,
) -> str:
    """The address, without a host, at which a browser may follow this job: for `new EventSource(...)`.
    `base` is where the web is mounted, such as '/jobs'."""
    return f"{base}{EVENTS}?link={make_link(app, job, expires=expires, result=result)}"


def read_link(secret: bytes, text: str, now: datetime) -> Link | None:
    """What a link says; None if it is not ours, was changed, or has expired."""
    body, dot, signature = text.partition(".")
    if len(text) > _LONGEST or not dot or not text.isascii():
        return None
    if not hmac.compare_digest(signature, _signature(secret, body)):
        return None
    told = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    link = Link(job=told["job"], expires=told["exp"], result=told["result"])
    return link if now.timestamp() < link.expires else None


def has_link(scope: Scope) -> bool:
    """Is this asked by a link? Then nothing else counts that comes with it, a cookie least of all."""
    return "link" in QueryParams(scope.get("query_string", b""))


def _signature(secret: bytes, body: str) -> str:
    return _text(hmac.digest(secret, b"holdfast link:" + body.encode(), hashlib.sha256))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
