"""Secrets that open the dashboard once: for the browser that a command opens by itself.

They are known to this process alone, for a short time. One travels in an address's fragment, which
browsers do not send; whoever finds it in a history later finds nothing."""

import secrets
import threading
import time
from collections.abc import Callable

LIFE = 120.0  # seconds; a browser needs a moment to start
PREFIX = "once_"


class Invitations:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, float] = {}

    def make(self) -> str:
        secret = PREFIX + secrets.token_urlsafe(32)
        with self._lock:
            self._open[secret] = self._clock() + LIFE
        return secret

    def take(self, secret: str) -> bool:
        """Whether it opens; if so, it does not again."""
        with self._lock:
            until = self._open.pop(secret, None)
        return until is not None and self._clock() < until
