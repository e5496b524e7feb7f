"""The system itself: the database and its settings; and, at the root, what monitors ask."""

import platform
import re
from typing import Any

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
from holdfast.web.api.presenting import as_json
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json
from holdfast.web.responses import Alive, Health, System
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import PUBLIC, Permission

routes = Routes("system")
probes = Routes("probes")


@routes.get("/system", may=Permission.SYSTEM_READ, answer=System)
def system(web: Web) -> Json:
    """The database, how it is set up, and what is set."""
    app = web.app
    settings, measures = app.settings, app.engine.doctor.measure()
    return Json(
        {
            "engine": "sqlite" if app.url.startswith("sqlite") else "postgres",
            "database": without_password(app.url),
            "server_version": measures.version,
            "version": web.version,
            "python": platform.python_version(),
            "findings": [finding._asdict() for finding in app.engine.doctor.diagnose()],
            "sizes": measures.sizes._asdict(),
            "schema": {
                "version": len(measures.migrations),
                "migrations": [
                    {"name": name, "applied_at": as_json(at)} for name, at in measures.migrations
                ],
            },
            "retention": {status.value: settings.retention[status] for status in sorted(FINISHED)},
            "settings": {
                "max_attempts": settings.max_attempts,
                "timeout": settings.timeout,
                "poll_interval": settings.poll_interval,
                "heartbeat": settings.heartbeat,
                "workdir": str(settings.workdir),
                "archive": None if settings.archive is None else str(settings.archive),
                "app_version": settings.app_version,
                "health": as_json(settings.health),
            },
        }
    )


def without_password(url: str) -> str:
    """What may be shown of a database's URL: neither user nor password, nor what a query may hold. The
    user ends at the last '@' before a '/', as libpq has it: a password may hold '?' and '#'."""
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
    also={503: {"model": Alive | Health, "description": "Something needs somebody"}},
)
async def health(web: Web, request: Request) -> Json:
    """Is work being done? Who may read jobs is told what was found; everybody else, yes or no."""
    try:
        me = await web.gate.who(request)
    except Refusal:  # a token that is over makes nobody, not an error: a monitor is to be told
        me = None
    found: Any = await run_in_threadpool(web.app.health)
    told = as_json(found) if me is not None and me.may(Permission.JOBS_READ) else {"ok": found.ok}
    return Json(told, status_code=200 if found.ok else 503)


@probes.get("/ready", may=PUBLIC, answer=Alive, also={503: {"model": Alive}})
def ready(web: Web) -> Json:
    """Does the database answer, with the tables of this release?"""
    try:
        web.app.engine.open()
        web.app.engine.now()
    except HoldfastError:
        return Json({"ok": False}, status_code=503)
    return Json({"ok": True})


@probes.get("/metrics", may=Permission.METRICS_READ, answer=None, kinds=("text/plain",))
def metrics(web: Web) -> Response:
    """For Prometheus."""
    app, snapshot = web.app, Snapshot(web.app.engine)
    text = prometheus.render(
        read_stats(snapshot, "5m", app.tasks), read_health(snapshot, app.settings.health)
    )
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
