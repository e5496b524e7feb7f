"""Keys of limits with a function (`Limit(per=function)`). The function is called between the
transactions of claims, never inside one: a slow function, or one that freezes the process, must not
block other writers.

A claim looks up the keys of payloads. A job whose key is not known stays pending, and the function is
called after the claim, so that the next claim finds the key.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b

from holdfast.limits.limit import KeyOf, Rule

KEPT = 10.0  # seconds; the function may depend on more than its arguments
_MOST = 10_000  # keys; more than a claim looks at

Payload = tuple[str, bytes]  #: a task, and a digest of the arguments


class KeyNotMade(Exception):
    """The job's key is not known yet."""


class LimitKeys:
    """A cache of keys by payload, shared by the claims of an engine."""

    def __init__(self, kept: float = KEPT) -> None:
        self._kept = kept
        self._made: dict[Payload, tuple[float, str | Exception]] = {}
        self._lock = threading.Lock()

    def for_claim(self, rules: Mapping[str, Rule]) -> "ClaimKeys":
        return ClaimKeys(self, rules)

    def get(self, payload: Payload) -> str | Exception | None:
        """Return the key, or what the function raised; None if it is not in the cache."""
        with self._lock:
            until, key = self._made.get(payload, (0.0, None))
        return key if time.monotonic() < until else None

    def put(self, payload: Payload, key: str | Exception) -> None:
        with self._lock:
            self._made.pop(payload, None)
            self._made[payload] = (time.monotonic() + self._kept, key)
            while len(self._made) > _MOST:
                del self._made[next(iter(self._made))]  # the oldest


class ClaimKeys:
    """The rules of one claim, whose functions only look up keys in the cache."""

    def __init__(self, keys: LimitKeys, rules: Mapping[str, Rule]) -> None:
        self._keys = keys
        self._missed: dict[Payload, tuple[KeyOf, str]] = {}
        self.rules = rules
        if any(rule.calls_function for rule in rules.values()):
            self.rules = {type: self._looking_up(type, rule) for type, rule in rules.items()}

    def _looking_up(self, type: str, rule: Rule) -> Rule:
        if rule.key_of is None or not rule.calls_function:
            return rule
        make = rule.key_of

        def look_up(payload: str) -> str:
            known = type, blake2b(payload.encode(errors="surrogatepass"), digest_size=16).digest()
            key = self._keys.get(known)
            if key is None:
                self._missed[known] = make, payload
                raise KeyNotMade
            if isinstance(key, Exception):
                raise key
            return key

        return replace(rule, key_of=look_up)

    def make_missed(self) -> bool:
        """Call the functions for the jobs whose keys were not known; return whether there were any.
        Must not be called inside a transaction."""
        missed, self._missed = self._missed, {}
        for known, (make, payload) in missed.items():
            self._keys.put(known, _called(make, payload))
        return bool(missed)


def _called(make: KeyOf, payload: str) -> str | Exception:
    try:
        return make(payload)
    except Exception as problem:  # it fails the job when the job is claimed
        return problem
    except SystemExit as problem:  # it must not end the thread that claims
        return RuntimeError(repr(problem))
