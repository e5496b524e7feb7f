"""Routes that declare who may call them. The server cannot be made with a route that does not."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partialmethod
from typing import Any, Protocol, TypeVar

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import create_model
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from holdfast.access import Entry
from holdfast.web.replies import Json
from holdfast.web.security.gate import address_of
from holdfast.web.security.permissions import KNOWN, PUBLIC, Identity, Permission

logger = logging.getLogger("holdfast.web")
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

DECLARED = "x-holdfast-permission"
LINKED = "x-holdfast-linked"  #: marks a route that a signed link opens, too
_ERRORS = (400, 401, 403, 404, 405, 409, 413, 415, 421, 422, 429, 503)
_UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_TEXT = {"schema": {"type": "string"}}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


class GuardedRoute(APIRoute):
    """Authenticates the caller before anything is read, and records every change in the audit log."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        extra = self.openapi_extra or {}
        wanted, linked = extra[DECLARED], bool(extra.get(LINKED))
        action = self.name
        audited = bool(_UNSAFE & set(self.methods or ()))

        async def handle(request: Request) -> Response:
            web = request.app.state.web
            me = await web.gate.admit(request, wanted, linked=linked)
            request.state.me = me
            response = await answer(request)
            if audited and me is not None and not (action == "enqueue" and me.via == "token"):
                await run_in_threadpool(record, web, request, me, action, response.status_code)
            return response

        return handle


def record(web: Any, request: Request, me: Identity, action: str, status: int) -> None:
    """Record a change in the audit log. The change is made by now: if recording fails, it is logged."""
    detail = {"status": status, **getattr(request.state, "audit", {})}
    target = ", ".join(str(value) for value in request.path_params.values())
    entry = Entry(
        actor=me.who,
        role=me.role,
        action=action,
        target=target,
        detail=detail,
        address=address_of(request),
        request_id=request.scope["state"]["request_id"],
    )
    try:
        web.access.record(entry)
    except Exception:
        logger.exception(
            "could not write the audit log: %s did %s of %s: %s", me.who, action, target, detail
        )


class Decorator(Protocol):
    def __call__(self, endpoint: Endpoint, /) -> Endpoint: ...


class Routes:
    """The routes of one tag: `@routes.get("/jobs", may=Permission.JOBS_READ, answer=JobPage)`."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._declared: list[tuple[str, Callable[..., Any], dict[str, Any]]] = []
        self._routers: dict[str, APIRouter] = {}

    def join(self, server: FastAPI, prefix: str = "") -> None:
        """Serve the routes under the prefix. All servers share them, since they do not depend on one:
        reading sixty signatures takes longer than the rest of a start."""
        if prefix not in self._routers:
            router = self._routers[prefix] = APIRouter()
            for path, endpoint, options in self._declared:
                router.add_api_route(prefix + path, endpoint, **options)
        server.router.routes.extend(self._routers[prefix].routes)

    def _add(
        self,
        method: str,
        path: str,
        *,
        may: str,
        answer: Any,
        status: int = 200,
        also: dict[int, Any] | None = None,
        kinds: Sequence[str] = (),
        linked: bool = False,
    ) -> Decorator:
        """Declare a route. `may`: the permission it needs. `answer`: the model of its JSON, or the
        types of its fields; the first names the model. `kinds`: the media types, if it is not JSON. A
        route with neither is a page, and not part of OpenAPI."""
        content = {"content": dict.fromkeys(kinds, _TEXT)} if answer is None else {"model": answer}
        if isinstance(answer, dict):
            fields: dict[str, Any] = {name: (type, ...) for name, type in answer.items()}
            content = {"model": create_model(next(iter(answer)).title(), **fields)}
        errors = {code: {"description": "A problem", "content": _PROBLEM} for code in _ERRORS}
        extra: dict[str, Any] = {DECLARED: str(may)}
        if may == PUBLIC:
            extra["security"] = []
        if linked:
            extra[LINKED] = True

        def add(endpoint: Endpoint, /) -> Endpoint:
            options: dict[str, Any] = {
                "methods": [method],
                "response_model": None,
                "status_code": status,
                "responses": {**errors, status: content, **(also or {})},
                "tags": [self._tag],
                "summary": (endpoint.__doc__ or endpoint.__name__).strip().partition("\n")[0],
                "openapi_extra": extra,
                "include_in_schema": answer is not None or bool(kinds),
                "response_class": Response if answer is None else Json,
                "route_class_override": GuardedRoute,
            }
            self._declared.append((path, endpoint, options))
            return endpoint

        return add

    get: partialmethod[Decorator] = partialmethod(_add, "GET")
    post: partialmethod[Decorator] = partialmethod(_add, "POST")
    put: partialmethod[Decorator] = partialmethod(_add, "PUT")
    patch: partialmethod[Decorator] = partialmethod(_add, "PATCH")
    delete: partialmethod[Decorator] = partialmethod(_add, "DELETE")


def check_declared(server: FastAPI) -> None:
    """Deny by default: raise AssertionError if a route does not declare who may call it."""
    known = {PUBLIC, KNOWN, *Permission}
    for route in server.routes:
        if declared_of(route) not in known:
            raise AssertionError(f"the route {route!r} does not declare who may ask: may=...")


def declared_of(route: BaseRoute) -> str | None:
    """Return the permission that a route declares, if it declares one."""
    if isinstance(route, APIRoute):
        extra: dict[str, Any] = route.openapi_extra or {}
        return extra.get(DECLARED)
    endpoint = getattr(route, "endpoint", None)
    return getattr(endpoint, "holdfast_permission", None)
