"""Sessions, tokens and the audit log."""

import secrets
import time
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from holdfast.access import TokenInfo
from holdfast.errors import UnknownToken
from holdfast.web.api.parameters import After, Id, Limit, Me, Web
from holdfast.web.models import Done, Duration, Input, Name
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json
from holdfast.web.routing import Routes, record
from holdfast.web.security.gate import SESSION, cookie_name, is_secure
from holdfast.web.security.permissions import KNOWN, PUBLIC, Identity, Permission

routes = Routes("access")
_BROWSER = 120.0  # seconds in which a browser has to start


class Invitations:
    """Secrets that log in once, known to this process alone: for the browser that a command opens. A
    secret is passed in the fragment of an address, which browsers do not send; in a browser's history
    it is worthless later."""

    def __init__(self) -> None:
        self._open: dict[str, float] = {}

    def make(self) -> str:
        secret = f"once_{secrets.token_urlsafe(32)}"
        self._open[secret] = time.monotonic() + _BROWSER
        return secret

    def take(self, secret: str) -> bool:
        """Use up a secret; return whether it was valid."""
        return time.monotonic() < self._open.pop(secret, 0.0)


class Session(BaseModel):
    who: str
    role: str
    permissions: list[str]
    auth: Literal["token", "host"] = Field(description="What authenticated the caller")
    read_only: bool
    title: str
    version: str


class Login(Input):
    token: Annotated[str, Field(max_length=200)]


class Token(BaseModel):
    id: str
    name: str
    role: str
    tasks: list[str]
    queues: list[str]
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class MadeToken(Token):
    token: str = Field(description="Shown this once")


class NewToken(Input):
    name: Annotated[str, Field(min_length=1, max_length=100)]
    role: Literal["viewer", "operator", "admin", "enqueue"]
    tasks: Annotated[list[Name], Field(max_length=100, default_factory=list)]
    queues: Annotated[list[Name], Field(max_length=100, default_factory=list)]
    expires: Duration | None = None


class AuditEntry(BaseModel):
    id: str
    at: datetime
    actor: str
    role: str
    action: str
    target: str
    detail: dict[str, Any]
    address: str | None
    request_id: str | None


class Audit(BaseModel):
    entries: list[AuditEntry]
    next: str | None


def _session(web: Any, me: Identity) -> Json:
    return Json(
        {
            "who": me.who,
            "role": me.role,
            "permissions": sorted(me.permissions),
            "auth": "host" if me.via == "host" else "token",
            "read_only": web.options.read_only,
            "title": web.options.title,
            "version": web.version,
        }
    )


@routes.get("/session", may=KNOWN, answer=Session)
def who_am_i(web: Web, me: Me) -> Json:
    """The caller's name, role and permissions."""
    return _session(web, me)


@routes.post("/session", may=PUBLIC, answer=Session)
async def log_in(web: Web, login: Login, request: Request) -> Json:
    """Log in: exchange a token for a session cookie, which expires."""
    token: TokenInfo | None
    if web.invitations.take(login.token):
        token = await run_in_threadpool(_browser_token, web)
    else:
        token = await web.gate.check(request, login.token)
    if token is None or token.kind != "token":
        raise Refusal(401, "this token is not known, or is over")
    secret = await run_in_threadpool(web.access.session, token, SESSION)
    me = web.gate.identity_of(token, "session")
    await run_in_threadpool(record, web, request, me, "log_in", 200)
    answer = _session(web, me)
    answer.set_cookie(
        cookie_name(request),
        secret,
        httponly=True,
        samesite="strict",
        secure=is_secure(request),
        path=_cookie_path(request),
    )
    return answer


def _cookie_path(request: Request) -> str:
    """The prefix `__Host-` of a secure cookie demands the path '/'."""
    return "/" if is_secure(request) else request.scope.get("root_path") or "/"


def _browser_token(web: Any) -> TokenInfo:
    """Make a token for the browser that the command opened. It is listed and can be revoked like any
    other; its secret is dropped here."""
    token: TokenInfo = web.access.create("browser", "admin", expires=SESSION, by="the command")[0]
    return token


@routes.delete("/session", may=KNOWN, answer=Done)
def log_out(web: Web, request: Request) -> Json:
    """Log out: end the session of this cookie."""
    name = cookie_name(request)
    web.access.end(request.cookies.get(name))
    web.gate.forget()
    answer = Json({"done": True})
    answer.delete_cookie(name, path=_cookie_path(request))
    return answer


def _token(token: TokenInfo) -> dict[str, Any]:
    return {name: getattr(token, name) for name in Token.model_fields}


@routes.get("/tokens", may=Permission.TOKENS_MANAGE, answer={"tokens": list[Token]})
def list_tokens(web: Web) -> Json:
    """Every token, the newest first; their secrets are not stored."""
    return Json({"tokens": [_token(token) for token in web.access.list()]})


@routes.post("/tokens", may=Permission.TOKENS_MANAGE, answer=MadeToken, status=201)
def create_token(web: Web, me: Me, new: NewToken, request: Request) -> Json:
    """Make a token; its secret is shown this once."""
    token, secret = web.access.create(
        new.name, new.role, tasks=new.tasks, queues=new.queues, expires=new.expires, by=me.who
    )
    request.state.audit = {"token": token.id, "name": token.name, "role": token.role}
    return Json(_token(token) | {"token": secret}, status_code=201)


@routes.delete("/tokens/{id}", may=Permission.TOKENS_MANAGE, answer=Token)
def revoke_token(web: Web, id: Id) -> Json:
    """Revoke a token, and end the sessions that were opened with it."""
    try:
        token = web.access.revoke(str(id))
    except UnknownToken as problem:
        raise Refusal(404, str(problem)) from None
    web.gate.forget()
    return Json(_token(token))


@routes.get("/audit", may=Permission.AUDIT_READ, answer=Audit)
def audit(web: Web, after: After = None, limit: Limit = 100) -> Json:
    """What operators did, the newest first."""
    page = web.access.entries(None if after is None else str(after), limit)
    entries = [
        asdict(entry) | {"detail": entry.detail or {}, "target": entry.target or ""}
        for entry in page.entries
    ]
    return Json({"entries": entries, "next": page.next})
