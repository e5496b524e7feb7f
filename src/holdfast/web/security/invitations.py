"""Secrets that log in once: for the browser that a command opens.

They are known to this process alone, for a short time. A secret is passed in the fragment of an
address, which browsers do not send; in a browser's history it is worthless later."""

import secrets
import threading
import time
from collections.abc import Callable

LIFE = 120.0  # seconds, in which the browser has to start
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
        """Use up a secret; return whether it was valid."""
        with self._lock:
            until = self._open.pop(secret, None)
        return until is not None and self._clock() < until
