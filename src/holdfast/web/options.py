"""The options of the web, given to `dashboard(...)` or on the command line, and their defaults."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import InvalidInput

#: Patterns of keys whose values are never shown, at any depth of arguments and results.
REDACTED = (
    *("*password*", "*passwd*", "*secret*", "*token*", "*api_key*", "*apikey*", "*authorization*"),
    *("*credential*", "*private_key*", "cookie", "*session_key*", "*credit_card*", "*card_number*"),
)
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
_BASE = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-fA-F:]+\](:\d{1,5})?")

#: From a request, the caller: an Identity, a role's name, a pair of name and role, or None.
Authorize = Callable[[Any], Any]


@dataclass(slots=True, kw_only=True)
class WebOptions:
    authorize: Authorize | None = None  #: a function of the request that identifies the caller
    read_only: bool = False  #: refuse every change, whatever the role
    redact: Iterable[str] = REDACTED  #: patterns of keys whose values are not shown
    hosts: Iterable[str] | None = None  #: accepted host names; None: any
    origins: Iterable[str] = ()  #: other sites whose pages may call it
    base: str = ""  #: the path it is mounted at, if the server does not pass it on
    title: str = "Holdfast"  #: shown above the dashboard

    def __post_init__(self) -> None:
        if self.authorize is not None and not callable(self.authorize):
            raise InvalidInput(f"authorize={self.authorize!r}: give a function of the request")
        if not _BASE.fullmatch(self.base):
            raise InvalidInput(
                f"base={self.base!r}: give a path such as '/jobs', without a slash at its end"
            )
        self.hosts = None if self.hosts is None else frozenset(map(str.lower, self.hosts))
        self.origins = frozenset(self.origins)
        if wrong := sorted(one for one in self.origins if not _ORIGIN.fullmatch(one)):
            raise InvalidInput(
                f"origins: {wrong[0]!r} is none: write it as 'https://app.example.com'"
            )
        self.title = self.title[:100]
