"""Scripts of tokens, secrets and the audit log. They get the hash of a token, never the token
itself."""

import json
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal, NamedTuple

from holdfast.core.records import value
from holdfast.engine.dialect import MICRO, Dialect
from holdfast.engine.script import Row, Run, Script
from holdfast.jobs.read import LAST_ID

FRESH = 60.0  #: seconds between two writes of a token's last use
AGE = 365 * 86400.0  #: seconds: older entries of the audit log are deleted
KEPT = 1_000_000  #: entries of the audit log: of more, the oldest are deleted
PRUNED = 1000  #: entries or sessions that one call deletes
LISTED = 1000  #: tokens that a list has at most
_TIMES = ("created_at", "expires_at", "revoked_at", "last_used_at")
_TOKEN = ("id", "name", "role", "kind", "scope", "parent_id", *_TIMES, "created_by")
_ENTRY = ("id", "at", "actor", "role", "action", "target", "detail", "address", "request_id")

Kind = Literal["token", "session"]


@value
class TokenInfo:
    """A token, or a session of one, without its secret."""

    id: str
    name: str
    role: str
    kind: Kind
    tasks: tuple[str, ...]  #: that it may enqueue; none: all
    queues: tuple[str, ...]  #: into which it may enqueue; none: all
    parent_id: str | None  #: of a session: the token that it came from
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None  #: to the minute
    created_by: str | None


@value
class NewToken:
    id: str
    hash: str
    name: str
    role: str
    kind: Kind = "token"
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    life: float | None = None  #: seconds; None: until it is revoked
    parent_id: str | None = None
    created_by: str | None = None


@value
class Entry:
    """One entry of the audit log: an action, or an attempt."""

    actor: str
    role: str
    action: str
    target: str | None = None
    detail: dict[str, Any] | None = None
    address: str | None = None
    request_id: str | None = None
    id: str = ""  #: given when it is recorded
    at: datetime | None = None  #: as well


class Entries(NamedTuple):
    entries: list[Entry]
    next: str | None  #: give it as `after` for the next page; None: that was all


class Found(NamedTuple):
    token: TokenInfo
    hash: str
    is_stale: bool  #: the time of its last use must be written


def add(dialect: Dialect, new: NewToken) -> Script[TokenInfo]:
    params = {
        **asdict(new),
        "now": dialect.now(),
        "scope": json.dumps({"tasks": new.tasks, "queues": new.queues}),
        "life": None if new.life is None else round(new.life * MICRO),
    }
    return _token(dialect, (yield Run("add_token", params)).rows[0])


def add_first(dialect: Dialect, new: NewToken) -> Script[TokenInfo | None]:
    """Add a token if there was never one, else return None. Of several callers, one succeeds."""
    yield Run("hold_tokens", {})
    if (yield Run("any_token", {"id": new.id})).rows[0][0]:
        return None
    return (yield from add(dialect, new))


def find(dialect: Dialect, hash: str) -> Script[Found | None]:
    params = {"now": dialect.now(), "hash": hash, "fresh": round(FRESH * MICRO)}
    rows = (yield Run("find_token", params)).rows
    return None if not rows else Found(_token(dialect, rows[0]), rows[0][-2], bool(rows[0][-1]))


def touch(dialect: Dialect, token: TokenInfo) -> Script[None]:
    params = {"now": dialect.now(), "id": token.id, "parent_id": token.parent_id}
    yield Run("touch_token", params)


def listing(dialect: Dialect, kind: Kind) -> Script[list[TokenInfo]]:
    reply = yield Run("tokens", {"kind": kind, "limit": LISTED})
    return [_token(dialect, row) for row in reply.rows]


def revoke(dialect: Dialect, id: str) -> Script[TokenInfo | None]:
    rows = (yield Run("revoke_token", {"now": dialect.now(), "id": id})).rows
    return _token(dialect, rows[0]) if rows else None


def end(hash: str) -> Script[bool]:
    return (yield Run("end_session", {"hash": hash})).changed > 0


def secret(name: str) -> Script[str | None]:
    rows = (yield Run("secret", {"name": name})).rows
    return rows[0][0] if rows else None


def keep_secret(name: str, made: str) -> Script[str]:
    """Store a secret unless the name has one; return the stored one."""
    yield Run("keep_secret", {"name": name, "value": made})
    kept: str = (yield Run("secret", {"name": name})).rows[0][0]
    return kept


def record(dialect: Dialect, entry: Entry, detail: str) -> Script[None]:
    """`detail` is JSON text."""
    yield Run("record", {**asdict(entry), "now": dialect.now(), "detail": detail})


def entries(dialect: Dialect, after: str | None, limit: int) -> Script[Entries]:
    reply = yield Run("entries", {"before": after or LAST_ID, "limit": limit})
    found = [_entry(dialect, row) for row in reply.rows]
    return Entries(found, found[-1].id if len(found) == limit else None)


def prune(dialect: Dialect, limit: int) -> Script[int]:
    """Delete old entries and expired sessions; return how many."""
    now = dialect.now()
    params = {"now": now, "age": round(AGE * MICRO), "kept": KEPT, "limit": limit}
    gone = (yield Run("prune_audit", params)).changed
    return gone + (yield Run("prune_sessions", {"now": now, "limit": limit})).changed


def _token(dialect: Dialect, row: Row) -> TokenInfo:
    values = dict(zip(_TOKEN, row, strict=False))  # `find_token` has two columns more
    scope = {name: tuple(allowed) for name, allowed in json.loads(values.pop("scope")).items()}
    times = {name: dialect.moment(values[name]) for name in _TIMES if values[name] is not None}
    return TokenInfo(**values | scope | times)


def _entry(dialect: Dialect, row: Row) -> Entry:
    values = dict(zip(_ENTRY, row, strict=True))
    return Entry(**values | {"at": dialect.moment(row[1]), "detail": json.loads(row[6])})
