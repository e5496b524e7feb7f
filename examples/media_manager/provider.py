"""The provider of metadata, over HTTP, and how each of its errors is retried."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from examples.media_manager.store import EntityGone
from holdfast import Retry


class NotFound(Exception):
    """The provider does not have it."""


class Refused(Exception):
    """The provider rejects the request or the API key."""


class Unavailable(Exception):
    """The provider is overloaded or fails."""


#: Errors that would occur again, so they are not retried. All others are: timeouts, lost
#: connections, a disk that is full or not mounted, a database that does not answer.
PERMANENT = (EntityGone, NotFound, Refused, PermissionError)


class Provider:
    def __init__(self, url: str, name: str, timeout: float) -> None:
        self._name = name
        self._client = httpx.Client(base_url=url, timeout=timeout)

    def details(self, kind: str, title: str, year: int | None) -> dict[str, Any]:
        query = {"title": title, "year": year or ""}
        return dict(self._json(f"/{kind}", query, f"{kind} {title!r}"))

    def images(self, kind: str, id: int) -> list[dict[str, str]]:
        return list(self._json(f"/{kind}/{id}/images", {}, f"pictures of {kind} {id}"))

    def download(self, url: str, cache: Path, scratch: Path, stop: Callable[[], bool]) -> str:
        """Download a file into the cache under a name made of its content, so it is stored once. The
        file is never entirely in memory, and never partial in the cache."""
        digest, part = hashlib.sha256(), scratch / "part"
        with self._client.stream("GET", url) as answer, part.open("wb") as file:
            self._check(answer, f"picture {url}")
            for chunk in answer.iter_bytes():
                if stop():
                    raise InterruptedError(f"stopped while {url} came in")
                digest.update(chunk)
                file.write(chunk)
        name = digest.hexdigest() + Path(urlsplit(url).path).suffix
        place_file(part, cache / name)
        return name

    def close(self) -> None:
        self._client.close()

    def _json(self, path: str, query: dict[str, Any], what: str) -> Any:
        answer = self._client.get(path, params=query)
        self._check(answer, what)
        return answer.json()

    def _check(self, answer: httpx.Response, what: str) -> None:
        status = answer.status_code
        if status == 429:
            seconds = answer.headers.get("Retry-After", "")
            if seconds.isdigit():
                raise Retry(f"{self._name} API rate limit exceeded", after=int(seconds))
            raise Unavailable(f"{self._name} API rate limit exceeded")
        if status == 404:
            raise NotFound(f"{self._name} has no {what}: content not found")
        if status >= 500:
            raise Unavailable(f"{self._name} answered {status} when asked for {what}")
        if status >= 400:
            raise Refused(
                f"{self._name} answered {status} when asked for {what}: is the API key right?"
            )


def place_file(source: Path, target: Path) -> None:
    """Copy a file atomically, whenever the process dies."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with source.open("rb") as old, part.open("wb") as new:
            while block := old.read(1 << 20):
                new.write(block)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
