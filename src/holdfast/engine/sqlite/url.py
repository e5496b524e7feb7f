"""Parses a `sqlite:///` URL: the file, and the options of the engine."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.errors import InvalidURL

BUSY_TIMEOUT = 5.0


def parse_url(url: str) -> tuple[Path, dict[str, Any]]:
    """Return the absolute path, and the options as `SqliteEngine` takes them. Raises InvalidURL."""
    parts = urlsplit(url)
    path = unquote(parts.path[1:])
    if parts.netloc or not path or path.endswith("/") or path == ":memory:":
        raise InvalidURL(
            f"{url!r} names no file: write 'sqlite:///jobs.db' for a file in this folder, "
            "'sqlite:////var/lib/jobs.db' for an absolute path; a queue cannot live in memory, "
            "since its worker is another process"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    try:
        settings: dict[str, Any] = {
            "synchronous": {"full": "FULL", "normal": "NORMAL"}[options.pop("synchronous", "full")],
            "busy_timeout": float(options.pop("busy_timeout", BUSY_TIMEOUT)),
            "allow_network": {"allow": True, "refuse": False}[options.pop("network", "refuse")],
        }
    except (KeyError, ValueError):
        options["?"] = ""
    if options:
        raise InvalidURL(
            f"{url!r}: the options are synchronous=full|normal, busy_timeout=SECONDS and "
            "network=refuse|allow"
        )
    return Path(path).absolute(), settings
