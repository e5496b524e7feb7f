"""The web: REST, live events and the dashboard, closed by default. Needs `pip install 'holdfast[web]'`.

from holdfast.web import dashboard
server.mount("/jobs", dashboard(app))      # FastAPI, Starlette
"""

from typing import Any

from fastapi import FastAPI

from holdfast.app import Holdfast
from holdfast.web.options import REDACTED, WebOptions
from holdfast.web.security.links import follow_link, make_link
from holdfast.web.security.permissions import Identity, Permission
from holdfast.web.server import make_server

__all__ = ["REDACTED", "Identity", "Permission", "dashboard", "follow_link", "make_link"]


def dashboard(app: Holdfast, **options: Any) -> FastAPI:
    """Return an ASGI application to serve, or to mount under any path. The options: `authorize`
    (identifies the caller by the host application's authentication), `read_only`, `redact` (patterns of
    keys), `hosts` (accepted host names), `origins` (other sites whose pages may call it), `base` (the
    path it is mounted at, if the server does not pass it on), `title`."""
    return make_server(app, WebOptions(**options))
