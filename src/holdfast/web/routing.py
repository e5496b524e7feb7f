"""Routes that say who may ask. One that does not say fails when the server is made."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from holdfast.web.replies import Json
from holdfast.web.security.gate import address_of
from holdfast.web.security.permissions import KNOWN, PUBLIC, Identity, Permission

logger = logging.getLogger("holdfast.web")
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

DECLARED = "x-holdfast-permission"
LINKED = "x-holdfast-linked"  #: of a route that a signed link opens, too
_ERRORS = (400, 401, 403, 404, 405, 409, 413, 415, 421, 422, 429, 503)
_UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_TEXT = {"schema": {"type": "string"}}
_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


class Guarded(APIRoute):
    """Asks who it is before anything is read, and writes down what was changed."""

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
                await run_in_threadpool(note, web, request, me, action, response.status_code)
            return response

        return handle


def note(web: Any, request: Request, me: Identity, action: str, status: int) -> None:
    """What somebody did. It is done by now: what cannot be written down is logged instead."""
    detail = {"status": status, **getattr(request.state, "audit", {})}
    target = ", ".join(str(value) for value in request.path_params.values())
    try:
        web.record(
            me,
            action,
            target,
            detail,
            address=address_of(request),
            request_id=request.scope["state"]["request_id"],
        )
    except Exception:
        logger.exception("audit: %s did %s of %s: %s", me.who, action, target, detail)


class Routes:
    """`@routes.get("/jobs", may=Permission.JOBS_READ, answer=JobPage)`."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._declared: list[tuple[str, Callable[..., Any], dict[str, Any]]] = []
        self._made: dict[str, APIRouter] = {}

    def join(self, server: FastAPI, prefix: str = "") -> None:
        """Serve them, each under the prefix. They know nothing of a server, so all servers share them:
        to read sixty signatures takes longer than anything else of a start."""
        if prefix not in self._made:
            router = self._made[prefix] = APIRouter()
            for path, endpoint, more in self._declared:
                router.add_api_route(prefix + path, endpoint, **more)
        server.router.routes.extend(self._made[prefix].routes)

    def _add(
        self,
        method: str,
        path: str,
        may: str,
        answer: Any,
        status: int = 200,
        also: dict[int, Any] | None = None,
        kinds: Sequence[str] = (),
        linked: bool = False,
    ) -> Callable[[Endpoint], Endpoint]:
        """`answer`: the model of what is told; `kinds`: what it is instead of JSON. A route that has
        neither is a page, and no part of the description."""
        told = {"model": answer} if answer is not None else {"content": dict.fromkeys(kinds, _TEXT)}
        responses: dict[int, Any] = {status: told, **(also or {})}
        for code in _ERRORS:
            responses.setdefault(code, {"description": "A problem", "content": _PROBLEM})

        def add(endpoint: Endpoint) -> Endpoint:
            more: dict[str, Any] = {
                "methods": [method],
                "response_model": None,
                "status_code": status,
                "responses": responses,
                "tags": [self._tag],
                "summary": (endpoint.__doc__ or endpoint.__name__).strip().partition("\n")[0],
                "openapi_extra": {
                    DECLARED: str(may),
                    **({"security": []} if may == PUBLIC else {}),
                    **({LINKED: True} if linked else {}),
                },
                "include_in_schema": answer is not None or bool(kinds),
                "response_class": Response if answer is None else Json,
                "route_class_override": Guarded,
            }
            self._declared.append((path, endpoint, more))
            return endpoint

        return add

    def get(
        self, path: str, *, may: str, answer: Any, **more: Any
    ) -> Callable[[Endpoint], Endpoint]:
        return self._add("GET", path, may, answer, **more)

    def post(
        self, path: str, *, may: str, answer: Any, **more: Any
    ) -> Callable[[Endpoint], Endpoint]:
        return self._add("POST", path, may, answer, **more)

    def put(
        self, path: str, *, may: str, answer: Any, **more: Any
    ) -> Callable[[Endpoint], Endpoint]:
        return self._add("PUT", path, may, answer, **more)

    def patch(
        self, path: str, *, may: str, answer: Any, **more: Any
    ) -> Callable[[Endpoint], Endpoint]:
        return self._add("PATCH", path, may, answer, **more)

    def delete(
        self, path: str, *, may: str, answer: Any, **more: Any
    ) -> Callable[[Endpoint], Endpoint]:
        return self._add("DELETE", path, may, answer, **more)


def check_declared(server: FastAPI) -> None:
    """Deny by default: every route has declared who may ask, or there is no server."""
    known = {PUBLIC, KNOWN, *Permission}
    for route in server.routes:
        declared = declared_of(route)
        if declared not in known:
            raise AssertionError(f"the route {route!r} does not declare who may ask: may=...")


def declared_of(route: BaseRoute) -> str | None:
    if isinstance(route, APIRoute):
        extra: dict[str, Any] = route.openapi_extra or {}
        return extra.get(DECLARED)
    endpoint = getattr(route, "endpoint", None)
    return getattr(endpoint, "holdfast_permission", None)
