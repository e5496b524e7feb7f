"""Feeds: fetched over HTTP, read as RSS 2.0. This module knows nothing of jobs and the database."""

import ssl
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import NamedTuple
from xml.etree import ElementTree  # expat, since 2.4.1, refuses entities that grow without bounds

import httpx

LARGEST = 10 * 1024 * 1024
ITUNES = "{http://www.itunes.com/dtds/podcast-1.0.dtd}"


class FeedGone(Exception):
    """The publisher says that the feed is gone for good, so it is not retried."""


class NotAFeed(Exception):
    """The body is no RSS. It may have been cut off, so it is retried."""


class Episode(NamedTuple):
    guid: str
    title: str
    audio: str | None
    published: datetime | None
    seconds: int


class Feed(NamedTuple):
    title: str
    episodes: list[Episode]


@cache
def ssl_context() -> ssl.SSLContext:
    """Return the trusted certificates. Cached: reading them takes a while and blocks the event loop."""
    return ssl.create_default_context()


async def fetch(url: str) -> bytes:
    async with (
        httpx.AsyncClient(timeout=30, follow_redirects=True, verify=ssl_context()) as client,
        client.stream("GET", url) as response,
    ):
        if response.status_code in (404, 410):
            raise FeedGone(f"{url} answered {response.status_code}")
        response.raise_for_status()
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > LARGEST:
                raise NotAFeed(f"{url} has more than {LARGEST} bytes")
    return bytes(body)


def parse(text: bytes) -> Feed:
    """Parse an RSS document; an episode that it lists twice counts once."""
    try:
        channel = ElementTree.fromstring(text).find("channel")
    except ElementTree.ParseError as problem:
        raise NotAFeed(f"the feed is no XML: {problem}") from problem
    if channel is None:
        raise NotAFeed("the feed has no <channel>: is it RSS?")
    episodes = {episode.guid: episode for episode in map(_episode, channel.iterfind("item"))}
    return Feed(channel.findtext("title", "").strip(), list(episodes.values()))


def _episode(item: ElementTree.Element) -> Episode:
    enclosure = item.find("enclosure")
    audio = None if enclosure is None else enclosure.get("url")
    title = item.findtext("title", "").strip()
    return Episode(
        guid=item.findtext("guid", "").strip() or audio or title,
        title=title,
        audio=audio,
        published=_published(item.findtext("pubDate")),
        seconds=_seconds(item.findtext(f"{ITUNES}duration", "")),
    )


def _published(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text or "")
    except ValueError:
        return None  # dates of publishers are often malformed


def _seconds(text: str) -> int:
    """Return the seconds of a duration such as 1:02:03, 62:03 or 3723."""
    parts = text.strip().split(":")
    if not all(part.isdecimal() for part in parts):
        return 0
    return sum(int(part) * 60**place for place, part in enumerate(reversed(parts)))
