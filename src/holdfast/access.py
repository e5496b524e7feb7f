"""Tokens, sessions, the audit log of the web interface, and the secrets of a database. Knows nothing of
HTTP; the web decides what each role may do.

The secret of a token is shown once, when the token is made. The database has only its SHA-256, which is
enough for 32 random bytes.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from holdfast.app import Holdfast
from holdfast.core import validation
from holdfast.core.duration import Duration, seconds
from holdfast.core.ids import new_id, parse_id
from holdfast.engine import access as access_scripts
from holdfast.engine.access import Entries, Entry, Kind, NewToken, TokenInfo
from holdfast.engine.engine import Engine
from holdfast.errors import DatabaseBusy, InvalidInput, UnknownToken

__all__ = ["ROLES", "Access", "Entries", "Entry", "TokenInfo"]

ROLES = ("viewer", "operator", "admin", "enqueue")
FIRST = "first start"  #: the name of the token that `first_token` makes
MARK = "hf_"  #: the beginning of every token
_SECRET = re.compile(MARK + r"[A-Za-z0-9_-]{43}")
_LONGEST_NAME = 100
_MOST_NAMES = 100
_LONGEST_FIELD = 500
_LARGEST_DETAIL = 16_384
_MOST_ENTRIES = 1000
_ID = "an id of a token or an entry: give a UUID, as lists have it"
_TEXTS = ("actor", "role", "action", "target", "address", "request_id")  # of an entry


class Access:
    """The tokens, sessions, audit log and secrets of a database."""

    def __init__(self, of: Holdfast | Engine) -> None:
        self._engine: Engine = of.engine if isinstance(of, Holdfast) else of

    # tokens

    def create(
        self,
        name: str,
        role: str,
        *,
        tasks: Iterable[str] = (),
        queues: Iterable[str] = (),
        expires: Duration | None = None,
        kind: Kind = "token",
        by: str | None = None,
    ) -> tuple[TokenInfo, str]:
        """Make a token, and return it with its secret, which cannot be read again. `tasks` and
        `queues`: the only tasks that an enqueue token may enqueue, and the only queues."""
        new, secret = _make(name, role, tasks, queues, expires, kind, by)
        return self._engine.write(access_scripts.add, new), secret

    def first_token(self) -> str | None:
        """Make an administrator's token and return its secret; return None if there was ever a token.
        Of several servers that start together, one makes the token."""
        new, secret = _make(FIRST, "admin", (), (), None, "token", None)
        made = self._engine.write(access_scripts.add_first, new)
        return None if made is None else secret

    def check(self, secret: object) -> TokenInfo | None:
        """Return the token or session of a secret; None if there is none, or it is revoked or
        expired."""
        hash = _hash(secret)
        found = self._engine.read(access_scripts.find, hash) if hash else None
        if found is None or not hmac.compare_digest(found.hash, hash):
            return None
        if found.is_stale:
            with suppress(DatabaseBusy):  # a use may go unrecorded
                self._engine.write(access_scripts.touch, found.token)
        return found.token

    def list(self, kind: Kind = "token") -> list[TokenInfo]:
        """Return tokens or sessions, the newest first, with revoked and expired ones."""
        return self._engine.read(access_scripts.listing, _kind(kind))

    def revoke(self, id: str) -> TokenInfo:
        """Revoke a token and end its sessions. Raises UnknownToken."""
        known = parse_id(id, _ID)
        revoked = self._engine.write(access_scripts.revoke, known)
        if revoked is None:
            raise UnknownToken(f"no token has the id {known}: 'holdfast tokens list' shows them")
        return revoked

    # sessions

    def session(self, of: TokenInfo, life: Duration) -> str:
        """Make a session with the permissions of a token, and return its secret. It ends with its
        token."""
        new, secret = _make(of.name, of.role, of.tasks, of.queues, life, "session", of.created_by)
        new = replace(new, parent_id=of.parent_id or of.id)
        self._engine.write(access_scripts.add, new)
        return secret

    def end(self, secret: object) -> bool:
        """End a session; return False if there is none."""
        hash = _hash(secret)
        return bool(hash) and self._engine.run(lambda: access_scripts.end(hash), write=True)

    # the audit log

    def record(self, entry: Entry) -> None:
        """Add an entry. Characters that cannot be stored are replaced."""
        texts: dict[str, Any] = {name: _storable(getattr(entry, name)) for name in _TEXTS}
        made = replace(entry, id=new_id(), **texts)
        self._engine.write(access_scripts.record, made, _detail(entry.detail or {}))

    def entries(self, after: str | None = None, limit: int = 100) -> Entries:
        """Return a page of the audit log, the newest entries first."""
        known = None if after is None else parse_id(after, _ID)
        size = validation.integer(limit, "limit", 1, _MOST_ENTRIES)
        return self._engine.read(access_scripts.entries, known, size)

    # secrets

    def secret(self, name: str) -> bytes:
        """Return 32 random bytes of this database, the same at each call with this name."""
        known = validation.name(name, "name")
        kept = self._engine.run(lambda: access_scripts.secret(known), write=False)
        if kept is None:
            new = secrets.token_hex(32)
            kept = self._engine.run(lambda: access_scripts.keep_secret(known, new), write=True)
        return bytes.fromhex(kept)


def _make(
    name: str,
    role: str,
    tasks: Iterable[str],
    queues: Iterable[str],
    expires: Duration | None,
    kind: Kind,
    by: str | None,
) -> tuple[NewToken, str]:
    if role not in ROLES:
        raise InvalidInput(f"role={role!r}: the roles are {', '.join(ROLES)}")
    only, into = _names(tasks, "tasks"), _names(queues, "queues")
    if role != "enqueue" and (only or into):
        raise InvalidInput(
            f"role={role!r} with tasks= or queues=: only an 'enqueue' token is bound to some; leave "
            "them out, or make an 'enqueue' token"
        )
    life = None if expires is None else seconds(expires, what="expires")
    if life == 0:
        raise InvalidInput("expires=0: give a time from now on, such as '30d', or None for no end")
    secret = f"{MARK}{secrets.token_urlsafe(32)}"
    new = NewToken(
        id=new_id(),
        hash=_hash(secret),
        name=_name(name),
        role=role,
        kind=_kind(kind),
        life=life,
        tasks=only,
        queues=into,
        created_by=_storable(by),
    )
    return new, secret


def _kind(kind: Kind) -> Kind:
    if kind not in ("token", "session"):
        raise InvalidInput(f"kind={kind!r}: the kinds are token, session")
    return kind


def _name(name: object) -> str:
    known = name.strip() if isinstance(name, str) else ""
    if not known.isprintable() or not 0 < len(known) <= _LONGEST_NAME:
        raise InvalidInput(
            f"name={str(name)[:150]!r}: a token's name is 1 to {_LONGEST_NAME} printable characters; "
            "say whose it is, such as 'ann' or 'deploy script'"
        )
    return known


def _names(given: Iterable[str], what: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise InvalidInput(f"{what}={given!r}: give a list of names")
    known = tuple(sorted({validation.name(one, what) for one in given}))
    if len(known) > _MOST_NAMES:
        raise InvalidInput(f"{what}: {len(known)} names were given, at most {_MOST_NAMES}")
    return known


def _hash(secret: object) -> str:
    """Return the hash of a secret; an empty text for what cannot be one."""
    if not isinstance(secret, str) or not _SECRET.fullmatch(secret):
        return ""
    return hashlib.sha256(secret.encode()).hexdigest()


def _storable(text: str | None) -> str | None:
    """Return a text without characters that databases cannot store, of a bounded length."""
    plain = str(text)[:_LONGEST_FIELD].encode("utf-8", "replace").decode()
    return None if text is None else plain.replace("\x00", "\ufffd")


def _detail(given: dict[str, Any]) -> str:
    text = json.dumps(given, ensure_ascii=False, default=str)
    if len(text) > _LARGEST_DETAIL:
        text = json.dumps({"left_out": f"{len(text)} characters"})
    return text.encode("utf-8", "replace").decode()
