"""The server: the API, the live events and the dashboard of an application, as one ASGI application."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware

from holdfast.access import Access, Entry
from holdfast.app import Holdfast
from holdfast.events.event import JobEvent
from holdfast.web import pages, problems
from holdfast.web.api import (
    bulk,
    errors,
    events,
    jobs,
    logs,
    queues,
    schedules,
    sessions,
    stats,
    system,
    tasks,
    workers,
    workflows,
)
from holdfast.web.live.frames import Frame
from holdfast.web.live.hub import Hub
from holdfast.web.operations import Operations
from holdfast.web.options import WebOptions
from holdfast.web.replies import Json
from holdfast.web.routing import check_declared
from holdfast.web.security.gate import Gate
from holdfast.web.security.invitations import Invitations
from holdfast.web.security.permissions import Identity
from holdfast.web.security.redaction import Redaction
from holdfast.web.security.shield import Shield

PREFIX = "/api/v1"
_PARTS = (
    *(jobs, logs, bulk, queues, schedules, workers, workflows, tasks),
    *(errors, stats, system, sessions),
)


class Web:
    """What the routes share."""

    def __init__(self, app: Holdfast, options: WebOptions) -> None:
        self.app = app
        self.options = options
        self.access = Access(app.engine)
        self.gate = Gate(self.access, options, app.clock.now)
        self.redact = Redaction(options.redact)
        self.operations = Operations()
        self.invitations = Invitations()
        self.hub = Hub(app.engine, self._frame)
        self.version = metadata.version("holdfast")

    def _frame(self, event: JobEvent) -> Frame:
        return Frame(event, self.redact(event.result))

    def record(
        self,
        me: Identity,
        action: str,
        target: str,
        detail: Mapping[str, Any],
        *,
        address: str,
        request_id: str,
    ) -> None:
        self.access.record(
            Entry(
                actor=me.who,
                role=me.role,
                action=action,
                target=target,
                detail=dict(detail),
                address=address,
                request_id=request_id,
            )
        )

    def close(self) -> None:
        """End what goes on, live streams too. Servers wait for answers that are under way before they
        say that they stop: so call it when they are told to, from a signal's handler if need be."""
        self.hub.close()
        self.operations.close()


def make_server(app: Holdfast, options: WebOptions) -> FastAPI:
    web = Web(app, options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(web.close)

    server = FastAPI(
        lifespan=lifespan,
        title=options.title,
        version=web.version,
        description="Jobs of this application. Every route says which permission it needs.",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # served by a route that says who may ask
        default_response_class=Json,
        middleware=[Middleware(Shield, options=options)],
        redirect_slashes=False,
    )
    server.state.web = web
    problems.install(server)
    for part in _PARTS:
        part.routes.join(server, PREFIX)
    events.join(server, PREFIX)
    system.probes.join(server)
    pages.routes.join(server)
    _describe(server)
    check_declared(server)
    return server


def _describe(server: FastAPI) -> None:
    """OpenAPI with our problems in it, and how to say who you are."""
    made = server.openapi

    def openapi() -> dict[str, Any]:
        if server.openapi_schema is None:
            schema = made()
            server.openapi_schema = schema
            parts = schema.setdefault("components", {})
            parts.setdefault("schemas", {})["Problem"] = problems.Problem.model_json_schema(
                ref_template="#/components/schemas/{model}"
            )
            nested = parts["schemas"]["Problem"].pop("$defs", {})
            parts["schemas"].update(nested)
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"token": []}]
        return server.openapi_schema

    server.openapi = openapi  # type: ignore[method-assign]
