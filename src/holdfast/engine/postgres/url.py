"""Parses a PostgreSQL URL: a server and a database, or several servers, of which the one is used that
can be written. libpq parses it, so everything that libpq understands is understood here."""

import os
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import InvalidURL

_HIGHEST_PORT = 65535


def check_url(url: str) -> None:
    """Refuse a URL that no connection can be made with, whatever its servers do."""
    try:
        info = conninfo_to_dict(url)
    except psycopg.Error as problem:
        raise InvalidURL(f"the PostgreSQL URL cannot be understood: {problem}") from None
    ports = _parts(info, "port")
    for port in filter(None, ports):
        if not port.isdecimal() or not 0 < int(port) <= _HIGHEST_PORT:
            raise InvalidURL(
                f"the PostgreSQL URL names the port {port!r}: give a number up to {_HIGHEST_PORT}"
            )
    hosts = _hosts(info)
    # A service, which libpq reads from a file, may name hosts, too.
    unseen = not hosts and (info.get("service") or os.environ.get("PGSERVICE"))
    if len(ports) > 1 and len(ports) != len(hosts) and not unseen:
        raise InvalidURL(
            f"the PostgreSQL URL names {len(hosts)} hosts and {len(ports)} ports: give one port for "
            "each host, or one for all"
        )


def with_defaults(url: str) -> dict[str, Any]:
    """Keyword arguments of a connection that the URL and the environment leave open: of several
    servers, take the one that can be written to. (A hot standby accepts connections and no writes.)"""
    info = conninfo_to_dict(url)
    several = len(_hosts(info)) > 1
    chosen = info.get("target_session_attrs") or os.environ.get("PGTARGETSESSIONATTRS")
    return {"target_session_attrs": "read-write"} if several and not chosen else {}


def describe(url: str) -> str:
    """The server and database of a URL, for people, without the password."""
    try:
        info = conninfo_to_dict(url)
    except psycopg.Error:
        return "PostgreSQL"
    first, *others = _parts(info, "host") or _parts(info, "hostaddr") or ["the local server"]
    more = f" and {len(others)} more" if others else ""
    return f"PostgreSQL ({first}{more}, database {info.get('dbname') or '(default)'})"


def _hosts(info: dict[str, Any]) -> list[str]:
    """The servers to be tried, as libpq counts them: addresses are looked at before names."""
    return _parts(info, "hostaddr", "PGHOSTADDR") or _parts(info, "host", "PGHOST")


def _parts(info: dict[str, Any], name: str, variable: str = "") -> list[str]:
    """The elements of a list that libpq takes for a parameter; none if it is not given."""
    given = str(info.get(name) or (os.environ.get(variable) if variable else "") or "")
    return given.split(",") if given else []
