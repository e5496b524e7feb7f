"""Authentication: by a bearer token, by the host application, or by the cookie of a login."""

import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from holdfast.access import MARK, Access, TokenInfo
from holdfast.web.options import WebOptions
from holdfast.web.problems import Refusal
from holdfast.web.security.links import SECRET, has_link, read_link
from holdfast.web.security.permissions import PUBLIC, READING, ROLES, Identity, Permission, Via
from holdfast.web.security.throttle import Throttle

T = TypeVar("T")
SESSION = "12h"  #: the longest that a session lasts
IDLE = 2 * 3600.0  #: seconds without a request, after which a session ends
REMEMBERED = 2.0  # seconds that the database's answer about a token is cached
_MOST = 1000  # tokens in the cache
_LONGEST = 200  # characters of a token


class Gate:
    def __init__(self, access: Access, options: WebOptions, now: Callable[[], datetime]) -> None:
        self._access = access
        self._options = options
        self._now = now
        self._known: dict[str, tuple[float, TokenInfo | None]] = {}
        self._secret: bytes | None = None  # of links
        self._failures = Throttle(per_minute=30, burst=10)  # by address
        self._changes = Throttle(per_minute=6000, burst=600)  # by caller

    async def admit(
        self, request: HTTPConnection, wanted: str, *, linked: bool = False
    ) -> Identity | None:
        """Authenticate and authorize a request. Return None for a public route, which needs neither;
        raise Refusal if the caller lacks the permission. `linked`: a signed link is accepted, too."""
        if wanted == PUBLIC:
            return None
        if linked and has_link(request.scope):
            return await self._from_link(request.query_params.getlist("link"))
        me = await self.authenticate(request)
        if me is None:
            raise Refusal(
                401,
                "say who you are: log in, or send 'Authorization: Bearer TOKEN' (holdfast tokens "
                "create makes one)",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if not me.may(wanted):
            because = "; this server is read-only" if self._options.read_only else ""
            raise Refusal(403, f"{me.who} ({me.role}) may not do this: it needs {wanted}{because}")
        if request.scope.get("method", "GET") not in ("GET", "HEAD"):
            caller = f"{me.via}:{me.who}"
            if (wait := self._changes.wait(caller)) > 0:
                raise too_many(wait)
            self._changes.spend(caller)
        return me

    async def authenticate(self, request: HTTPConnection) -> Identity | None:
        """Authenticate a request: by the host application, a bearer token or a session cookie. Return
        None for an anonymous caller; raise Refusal for a token that is not valid."""
        if has_link(request.scope):  # a page of any site may have made it: see request_guard.py
            return None
        header = request.headers.get("authorization")
        if self._options.authorize is not None and not _is_holdfast_token(header):
            answer = self._options.authorize(request)
            if inspect.isawaitable(answer):
                answer = await answer
            if answer is not None:
                return self._from_host(answer)
        if header is not None:  # then cookies are ignored
            return await self._from_bearer(request, header)
        secret = request.cookies.get(cookie_name(request))
        return None if secret is None else await self._from_session(secret)

    async def _from_bearer(self, request: HTTPConnection, header: str) -> Identity | None:
        kind, _, secret = header.partition(" ")
        token = None
        if kind.lower() == "bearer":
            token = await self.check(request, secret.strip())
        if token is None or token.kind != "token":
            raise Refusal(
                401,
                "this token is not known, or is over: holdfast tokens create makes one",
                headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
            )
        return self.identity_of(token, "token")

    async def check(self, request: HTTPConnection, secret: str) -> TokenInfo | None:
        """Return the token with this secret, or None. Addresses that guess secrets are slowed down."""
        address = address_of(request)
        wait = self._failures.wait(address)
        # A known good secret is not slowed down: behind a proxy, its caller may share the address of
        # one that guesses.
        if wait > 0 and self._known.get(secret, (0.0, None))[1] is None:
            raise too_many(wait)
        token = await self._look_up(secret)
        if token is None:
            self._failures.spend(address)
        return token

    async def _from_link(self, given: list[str]) -> Identity:
        if self._secret is None:
            self._secret = await run_in_threadpool(self._access.secret, SECRET)
        link = read_link(self._secret, given[0], self._now()) if len(given) == 1 else None
        if link is None:
            raise Refusal(401, "this link is not ours, or has expired: ask for a new one")
        return Identity(
            who="a link",
            role="guest",
            permissions=frozenset({Permission.EVENTS_READ}),
            via="link",
            job=link.job,
            result=link.result,
        )

    async def _from_session(self, secret: str) -> Identity | None:
        token = await self._look_up(secret)
        if token is None or token.kind != "session":
            return None
        last = token.last_used_at or token.created_at
        if (self._now() - last).total_seconds() > IDLE:
            return None
        return self.identity_of(token, "session")

    async def _look_up(self, secret: str) -> TokenInfo | None:
        if len(secret) > _LONGEST:
            return None
        begin = time.monotonic()
        known = self._known.get(secret)
        if known is not None and begin - known[0] < REMEMBERED:
            return known[1]
        token = await run_in_threadpool(self._access.check, secret)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[secret] = begin, token
        return token

    def forget(self) -> None:
        """Clear the cache, after a logout or the revocation of a token in this process."""
        self._known.clear()

    def _permissions(self, role: str) -> frozenset[Permission]:
        return ROLES[role] & READING if self._options.read_only else ROLES[role]

    def identity_of(self, token: TokenInfo, via: Via) -> Identity:
        return Identity(
            who=token.name,
            role=token.role,
            permissions=self._permissions(token.role),
            via=via,
            tasks=frozenset(token.tasks),
            queues=frozenset(token.queues),
        )

    def _from_host(self, answer: Any) -> Identity:
        if isinstance(answer, Identity):
            if not self._options.read_only:
                return answer
            return replace(answer, permissions=answer.permissions & READING)
        pair = ("host", answer) if isinstance(answer, str) else answer
        if not isinstance(pair, tuple) or len(pair) != 2 or pair[1] not in ROLES:
            raise TypeError(
                f"authorize() answered {answer!r}: it is to answer a role ({', '.join(ROLES)}), a pair "
                "of a name and a role, an Identity, or None"
            )
        name, role = str(pair[0])[:200], pair[1]
        return Identity(who=name, role=role, permissions=self._permissions(role), via="host")


def too_many(wait: float) -> Refusal:
    seconds = max(1, round(wait + 0.5))
    return Refusal(
        429, f"too many at once: again in {seconds} s", headers={"Retry-After": str(seconds)}
    )


def _is_holdfast_token(header: str | None) -> bool:
    """Is it a token of Holdfast? Any other may belong to the application in which the web is
    mounted."""
    return header is not None and header.partition(" ")[2].strip().startswith(MARK)


def is_secure(request: HTTPConnection) -> bool:
    return request.scope.get("scheme") in ("https", "wss")


def cookie_name(request: HTTPConnection) -> str:
    """Return the cookie's name. The prefix keeps other hosts and plain connections from setting it."""
    return "__Host-holdfast" if is_secure(request) else "holdfast"


def address_of(request: HTTPConnection) -> str:
    return "?" if request.client is None else request.client.host
