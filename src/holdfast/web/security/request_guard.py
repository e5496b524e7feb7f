"""Checks of every request before any route sees it (host, origin, size, content type), and the security
headers of every response."""

import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.web.options import WebOptions
from holdfast.web.problems import Refusal, problem, unexpected
from holdfast.web.security.links import has_link

LARGEST = 2 * 1024 * 1024  # bytes of a body: the largest payload, with room for other fields
_TOO_LARGE = f"the body is larger than {LARGEST:,} bytes: store large things, and pass their id"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE = frozenset({"same-origin", "none"})  # values of Sec-Fetch-Site
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class RequestGuard:
    """The outermost middleware, for requests and for WebSockets."""

    def __init__(self, inner: ASGIApp, options: WebOptions) -> None:
        self._inner = inner
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._inner(scope, receive, send)
            return
        if self._options.base and not scope.get("root_path"):
            scope = {**scope, "root_path": self._options.base}
        if scope["path"] in ("", scope.get("root_path")):  # the first page, without its slash
            scope = {**scope, "path": f"{scope['path']}/"}
        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        if refused is not None and scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4403, "reason": refused[1][:120]})
            return
        answer = _Answer(send, scope)
        if refused is not None:
            await problem(*refused)(scope, receive, answer)
        elif scope["type"] == "websocket":
            await self._inner(scope, receive, send)
        else:
            await self._pass(scope, receive, answer)

    async def _pass(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > LARGEST:
                raise Refusal(413, _TOO_LARGE)
            return message

        try:
            await self._inner(scope, bounded, answer)
        except Exception as error:  # here, so that this response too has the security headers
            if answer.begun:
                raise
            await unexpected(scope["method"], scope["path"], error)(scope, receive, answer)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._knows_host(host):
            return 421, (
                f"this server is not called {host[:200]!r}: call it by a name that it knows, or let "
                "it know this one (hosts=, --allow-host)"
            )
        if scope["type"] == "websocket":
            return self._refuse_page(scope, headers, host)
        method = scope["method"]
        if method in SAFE:
            return None
        return self._refuse_page(scope, headers, host) or _refuse_body(headers)

    def _knows_host(self, host: str) -> bool:
        hosts = self._options.hosts
        return hosts is None or host.lower() in hosts or without_port(host) in hosts

    def _refuse_page(self, scope: Scope, headers: Headers, host: str) -> tuple[int, str] | None:
        """Refuse pages of other sites. A browser names the page that makes a request; a program does
        not. A WebSocket with a signed link may come from any site: the link alone grants its right."""
        if scope["type"] == "websocket" and has_link(scope):
            return None
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and origin in self._options.origins:
            return None
        if site is not None and site not in _OWN_SITE:
            return 403, f"asked by a page of another site (Sec-Fetch-Site: {site[:40]})"
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return 403, (
                f"asked by a page of {origin[:200]!r}: only our own pages may, and those of "
                "origins="
            )
        return None


def _refuse_body(headers: Headers) -> tuple[int, str] | None:
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > LARGEST:
        return 413, _TOO_LARGE
    empty = length in ("", "0") and "transfer-encoding" not in headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not empty and kind != "application/json":
        return 415, f"the body is {kind[:80]!r}: send JSON, with Content-Type: application/json"
    return None


def without_port(host: str) -> str:
    name = host.lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0]


class _Answer:
    """Adds the security headers to a response, and knows whether the response has begun."""

    def __init__(self, send: Send, scope: Scope) -> None:
        self.begun = False
        self._send = send
        self._secure = scope.get("scheme") == "https"
        scope.setdefault("state", {})["request_id"] = self._id = secrets.token_hex(8)

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
            headers["X-Request-ID"] = self._id
            if self._secure:
                headers["Strict-Transport-Security"] = "max-age=31536000"
        await self._send(message)
