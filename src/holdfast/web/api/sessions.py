"""Who I am, logging in and out; tokens; and what was done."""

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from holdfast.access import TokenInfo
from holdfast.errors import UnknownToken
from holdfast.web.api.parameters import After, Id, Limit, Me, Web
from holdfast.web.api.presenting import as_json
from holdfast.web.models import Done
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json
from holdfast.web.responses import Audit, Login, MadeToken, NewToken, Session, Tokens
from holdfast.web.responses import Token as TokenModel
from holdfast.web.routing import Routes, note
from holdfast.web.security.gate import SESSION, cookie_name, is_secure
from holdfast.web.security.permissions import KNOWN, PUBLIC, Identity, Permission, identity

routes = Routes("access")


def _told(web: Any, me: Identity) -> dict[str, Any]:
    return {
        "who": me.who,
        "role": me.role,
        "permissions": sorted(me.permissions),
        "auth": "host" if me.via == "host" else "token",
        "read_only": web.options.read_only,
        "title": web.options.title,
        "version": web.version,
    }


@routes.get("/session", may=KNOWN, answer=Session)
def who_am_i(web: Web, me: Me) -> Json:
    """Who asks, and what they may."""
    return Json(_told(web, me))


@routes.post("/session", may=PUBLIC, answer=Session)
async def log_in(web: Web, login: Login, request: Request) -> Json:
    """Give a token, get a cookie that ends after a while."""
    token: TokenInfo | None
    if web.invitations.take(login.token):
        token = await run_in_threadpool(invited, web)
    else:
        token = await web.gate.check(request, login.token)
    if token is None or token.kind != "token":
        raise Refusal(401, "this token is not known, or is over")
    secret = await run_in_threadpool(web.access.session, token, SESSION)
    me = identity(token.name, token.role, "session", read_only=web.options.read_only)
    await run_in_threadpool(note, web, request, me, "log_in", 200)
    answer = Json(_told(web, me))
    secure = is_secure(request)
    answer.set_cookie(
        cookie_name(request),
        secret,
        httponly=True,
        samesite="strict",
        secure=secure,
        path="/" if secure else request.scope.get("root_path") or "/",
    )
    return answer


def invited(web: Any) -> TokenInfo:
    """A token for the browser that the command opened here, to be listed and revoked as any other; its
    secret is known to nobody."""
    token: TokenInfo = web.access.create("browser", "admin", expires=SESSION, by="the command")[0]
    return token


@routes.delete("/session", may=KNOWN, answer=Done)
def log_out(web: Web, request: Request) -> Json:
    """End the login of this cookie."""
    name = cookie_name(request)
    web.access.end(request.cookies.get(name))
    web.gate.forget()
    answer = Json({"done": True})
    answer.delete_cookie(
        name, path="/" if is_secure(request) else request.scope.get("root_path") or "/"
    )
    return answer


def _token(token: TokenInfo) -> dict[str, Any]:
    fields: dict[str, Any] = as_json(token)
    return {name: fields[name] for name in TokenModel.model_fields}


@routes.get("/tokens", may=Permission.TOKENS_MANAGE, answer=Tokens)
def list_tokens(web: Web) -> Json:
    """Every token, the newest first; what it opens with is not kept."""
    return Json({"tokens": [_token(token) for token in web.access.list()]})


@routes.post("/tokens", may=Permission.TOKENS_MANAGE, answer=MadeToken, status=201)
def create_token(web: Web, me: Me, new: NewToken, request: Request) -> Json:
    """A new token; its text is shown this once."""
    token, secret = web.access.create(
        new.name, new.role, tasks=new.tasks, queues=new.queues, expires=new.expires, by=me.who
    )
    request.state.audit = {"token": token.id, "name": token.name, "role": token.role}
    return Json(_token(token) | {"token": secret}, status_code=201)


@routes.delete("/tokens/{id}", may=Permission.TOKENS_MANAGE, answer=TokenModel)
def revoke_token(web: Web, id: Id) -> Json:
    """Nobody gets in with it any more, nor with a login that it has opened."""
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
        entry | {"detail": entry["detail"] or {}, "target": entry["target"] or ""}
        for entry in as_json(page.entries)
    ]
    return Json({"entries": entries, "next": page.next})
