"""The server: the API, the live events and the dashboard of an application, as one ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware

from holdfast.access import Access
from holdfast.app import Holdfast
from holdfast.web import pages, problems
from holdfast.web.api import (
    bulk,
    errors,
    events,
    jobs,
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
from holdfast.web.options import WebOptions
from holdfast.web.replies import Json
from holdfast.web.routing import check_declared
from holdfast.web.security.gate import Gate
from holdfast.web.security.redaction import Redaction
from holdfast.web.security.request_guard import RequestGuard

PREFIX = "/api/v1"
_PARTS = (
    *(jobs, bulk, queues, schedules, workers, workflows, tasks),
    *(errors, stats, system, sessions),
)


class Web:
    """What the routes of one server share."""

    def __init__(self, app: Holdfast, options: WebOptions) -> None:
        self.app = app
        self.options = options
        self.access = Access(app.engine)
        self.gate = Gate(self.access, options, app.clock.now)
        self.redact = Redaction(tuple(options.redact))
        self.operations = bulk.Operations()
        self.invitations = sessions.Invitations()
        self.hub = Hub(app.engine, lambda event: Frame(event, self.redact(event.result)))
        self.version = metadata.version("holdfast")

    def close(self) -> None:
        """End bulk operations and live streams. Call it as soon as the server is told to stop, from a
        signal's handler if need be: servers wait for open responses before they report the shutdown."""
        self.hub.close()
        self.operations.close()


class _Server(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Add the model of problems and the security scheme to the OpenAPI document."""
        if self.openapi_schema is None:
            schema = super().openapi()
            model = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            parts = schema.setdefault("components", {})
            parts.setdefault("schemas", {}).update(model.pop("$defs", {}), Problem=model)
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"token": []}]
            self.openapi_schema = schema
        return self.openapi_schema


def make_server(app: Holdfast, options: WebOptions) -> FastAPI:
    web = Web(app, options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(web.close)

    server = _Server(
        lifespan=lifespan,
        title=options.title,
        version=web.version,
        description="Jobs of this application. Every route says which permission it needs.",
        docs_url=None,  # its page loads scripts from another site
        redoc_url=None,
        openapi_url=None,  # served by a route that declares who may call it
        default_response_class=Json,
        middleware=[Middleware(RequestGuard, options=options)],
        redirect_slashes=False,
        exception_handlers=problems.HANDLERS,
    )
    server.state.web = web
    for part in _PARTS:
        part.routes.join(server, PREFIX)
    events.join(server, PREFIX)
    system.probes.join(server)
    pages.routes.join(server)
    check_declared(server)
    return server
