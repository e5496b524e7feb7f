"""Signed links: a link grants the right to follow one job, and nothing else, until it expires. They are
for pages of users without an account here, such as the progress bar of a user's own job.

A link is signed with a secret of the database, and is not stored."""

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
    result: bool  #: it also shows the job's result and error


def make_link(
    app: Holdfast, job: Job | UUID | str, *, expires: Duration = "1h", result: bool = False
) -> str:
    """Return a text that grants its holder the right to follow this job until it expires. `result`: the
    holder also sees the job's result and error."""
    life = seconds(expires, what="expires")
    if life == 0:
        raise InvalidInput("expires=0: give a time from now on, such as '1h'")
    id = job.id if isinstance(job, Job) else parse_id(job)
    claims = {"job": id, "exp": round(app.clock.now().timestamp() + life), "result": result}
    body = _text(json.dumps(claims, separators=(",", ":")).encode())
    return f"{body}.{_signature(Access(app).secret(SECRET), body)}"


def follow_link(
    app: Holdfast,
    job: Job | UUID | str,
    *,
    base: str = "",
    expires: Duration = "1h",
    result: bool = False,
) -> str:
    """Return the address, without a host, at which a browser can follow this job: for
    `new EventSource(...)`. `base` is the path at which the web is mounted, such as '/jobs'."""
    return f"{base}{EVENTS}?link={make_link(app, job, expires=expires, result=result)}"


def read_link(secret: bytes, text: str, now: datetime) -> Link | None:
    """Verify a link. Return None if its signature is wrong, or if it has expired."""
    body, dot, signature = text.partition(".")
    if len(text) > _LONGEST or not dot or not text.isascii():
        return None
    if not hmac.compare_digest(signature, _signature(secret, body)):
        return None
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    link = Link(job=claims["job"], expires=claims["exp"], result=claims["result"])
    return link if now.timestamp() < link.expires else None


def has_link(scope: Scope) -> bool:
    """Does the request carry a link? Then all other credentials are ignored, cookies above all."""
    return "link" in QueryParams(scope.get("query_string", b""))


def _signature(secret: bytes, body: str) -> str:
    return _text(hmac.digest(secret, b"holdfast link:" + body.encode(), hashlib.sha256))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
