"""The database and its settings; and, at the root, the probes of monitors."""

import platform
import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import HoldfastError
from holdfast.jobs.job import FINISHED
from holdfast.monitoring.health import read_health
from holdfast.monitoring.snapshot import Snapshot
from holdfast.monitoring.stats import read_stats
from holdfast.web import prometheus
from holdfast.web.api.parameters import Web
from holdfast.web.api.stats import Health
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import PUBLIC, Permission

routes = Routes("system")
probes = Routes("probes")
_SETTINGS = ("max_attempts", "timeout", "poll_interval", "heartbeat", "app_version", "health")


class Finding(BaseModel):
    level: Literal["ok", "warn", "fail"]
    subject: str
    text: str


class Sizes(BaseModel):
    database: int
    log: int | None
    free: int | None
    tables: dict[str, int]


class Migration(BaseModel):
    name: str
    applied_at: datetime


class Schema(BaseModel):
    version: int
    migrations: list[Migration]


class System(BaseModel):
    engine: str
    database: str
    server_version: str
    version: str
    python: str
    findings: list[Finding]
    sizes: Sizes = Field(description="Bytes")
    schema_: Annotated[Schema, Field(alias="schema")]
    retention: dict[str, float]
    settings: dict[str, Any]


class Alive(BaseModel):
    ok: bool


@routes.get("/system", may=Permission.SYSTEM_READ, answer=System)
def system(web: Web) -> Json:
    """The database, its findings and sizes, and the settings of this application."""
    app, settings = web.app, web.app.settings
    measures = app.engine.doctor.measure()
    migrations = [{"name": name, "applied_at": at} for name, at in measures.migrations]
    paths = {"workdir": settings.workdir, "archive": settings.archive}
    answer = {
        "engine": "sqlite" if app.url.startswith("sqlite") else "postgres",
        "database": without_password(app.url),
        "server_version": measures.version,
        "version": web.version,
        "python": platform.python_version(),
        "findings": [found._asdict() for found in app.engine.doctor.diagnose()],
        "sizes": measures.sizes._asdict(),
        "schema": {"version": len(migrations), "migrations": migrations},
        "retention": {status: settings.retention[status] for status in sorted(FINISHED)},
        "settings": {
            **{name: getattr(settings, name) for name in _SETTINGS},
            **{name: path and str(path) for name, path in paths.items()},
        },
    }
    return Json(answer)


def without_password(url: str) -> str:
    """Return a database's URL without user, password and query. The user ends at the last '@' before a
    '/', as in libpq: a password may hold '?' and '#'."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        return url.partition("?")[0]
    server, slash, path = rest.partition("/")
    shown = f"{server.rpartition('@')[2]}{slash}{path}"
    return f"{scheme}://{re.split('[?#]', shown)[0]}"


@routes.get("/openapi.json", may=Permission.JOBS_READ, answer=dict[str, Any])
def openapi(request: Request) -> Json:
    """This description."""
    return Json(request.app.openapi())


@probes.get(
    "/health",
    may=PUBLIC,
    answer=Alive | Health,
    also={503: {"model": Alive | Health, "description": "Something needs attention"}},
)
async def health(web: Web, request: Request) -> Json:
    """Is work being done? Callers that may read jobs get the findings; others get only `ok`."""
    try:
        me = await web.gate.authenticate(request)
    except Refusal:  # a monitor whose token has expired still gets an answer
        me = None
    found = await run_in_threadpool(web.app.health)
    may_read = me is not None and me.may(Permission.JOBS_READ)
    return Json(found if may_read else {"ok": found.ok}, status_code=200 if found.ok else 503)


@probes.get("/ready", may=PUBLIC, answer=Alive, also={503: {"model": Alive}})
def ready(web: Web) -> Json:
    """Does the database respond, with the tables of this release?"""
    try:
        web.app.engine.open()
        web.app.engine.now()
    except HoldfastError:
        return Json({"ok": False}, status_code=503)
    return Json({"ok": True})


@probes.get("/metrics", may=Permission.METRICS_READ, answer=None, kinds=("text/plain",))
def metrics(web: Web) -> Response:
    """Metrics in the format of Prometheus."""
    app, snapshot = web.app, Snapshot(web.app.engine)
    text = prometheus.render(
        read_stats(snapshot, "5m", app.tasks), read_health(snapshot, app.settings.health)
    )
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
