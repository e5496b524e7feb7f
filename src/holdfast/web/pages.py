"""The dashboard's files. Every page is the same shell, which calls the API. The files are public: they
are the package's own and contain no data."""

import html
import mimetypes
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from fastapi import Path as PathParameter
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from holdfast.web.problems import Refusal
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import PUBLIC

FILES = Path(__file__).parent / "static"
_FOREVER = "public, max-age=31536000, immutable"
_KINDS = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css"}
routes = Routes("pages")


@routes.get("/static/{version}/{path:path}", may=PUBLIC, answer=None)
def static(version: str, path: Annotated[str, PathParameter(max_length=300)]) -> Response:
    """A file of the dashboard; the version in its address lets browsers cache it."""
    found = (FILES / path).resolve() if "\x00" not in path else FILES
    try:
        known = found.is_relative_to(FILES.resolve()) and found.is_file()
    except OSError:  # a name that is too long for a file
        known = False
    if not known:
        raise Refusal(404, "there is no such file")
    kind = _KINDS.get(found.suffix) or mimetypes.guess_type(found.name)[0]
    return FileResponse(found, media_type=kind, headers={"Cache-Control": _FOREVER})


@routes.get("/{page:path}", may=PUBLIC, answer=None)
def shell(request: Request, page: str) -> Response:
    """Any page of the dashboard."""
    if page.split("/", 1)[0] in ("api", "static", "health", "ready", "metrics"):
        raise Refusal(404, f"there is nothing at /{page[:200]}")
    base = request.scope.get("root_path", "").rstrip("/")
    web = request.app.state.web
    text = (FILES / "index.html").read_text().replace("{{base}}", html.escape(base))
    text = text.replace("{{version}}", html.escape(f"{web.version}-{fingerprint()}"))
    text = text.replace("{{title}}", html.escape(web.options.title))
    return Response(text, media_type="text/html; charset=utf-8")


@lru_cache
def fingerprint() -> str:
    """Return a text that changes with any file, so that no browser uses an old one."""
    newest = max(
        (path.stat().st_mtime_ns for path in FILES.rglob("*") if path.is_file()), default=0
    )
    return f"{newest:x}"[-10:]
