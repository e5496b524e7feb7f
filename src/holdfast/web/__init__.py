"""The web: REST, live events and the dashboard, closed by default. Needs `pip install 'holdfast[web]'`.

from holdfast.web import dashboard
server.mount("/jobs", dashboard(app))      # FastAPI, Starlette
"""

from typing import Any

from fastapi import FastAPI

from holdfast.app import Holdfast
from holdfast.web.options import REDACTED, make_options
from holdfast.web.security.links import follow_link, make_link
from holdfast.web.security.permissions import Identity, Permission
from holdfast.web.server import make_server

__all__ = ["REDACTED", "Identity", "Permission", "dashboard", "follow_link", "make_link"]


def dashboard(app: Holdfast, **options: Any) -> FastAPI:
    """An ASGI application to be served, or mounted under any path. The options: `authorize` (who asks,
    by the host application's own word), `read_only`, `redact` (patterns of keys), `hosts` (names by
    which it may be called), `origins` (other sites whose pages may call it), `base` (the path it is
    mounted at, where the server does not tell), `title`."""
    return make_server(app, make_options(**options))
