"""Fetch a feed over HTTP, unless it has not changed since the last fetch."""

import re
import xml.etree.ElementTree as Xml
from email.message import Message
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

TIMEOUT = 30.0  # seconds without a byte
LARGEST = 8 * 2**20  # bytes
ATOM = "{http://www.w3.org/2005/Atom}"


class Entry(NamedTuple):
    guid: str
    title: str
    link: str


class FeedContents(NamedTuple):
    """What a feed contains."""

    title: str
    entries: list[Entry]
    ttl: int | None  #: minutes, by its own <ttl>
    hub: str | None  #: the WebSub hub that announces its changes


class Answer(NamedTuple):
    status: int
    headers: Message
    page: FeedContents | None  #: None: nothing has changed (304)


class Refused(Exception):
    """The server answered, and it was neither 200 nor 304."""

    def __init__(self, url: str, status: int, headers: Message) -> None:
        super().__init__(f"{url} answered {status}")
        self.headers = headers


def address(url: str) -> str:
    """Return the URL if it is http or https: other schemes could read files of this machine."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is no address of the web: give one with http:// or https://")
    return url


def fetch(url: str, etag: str | None, modified: str | None) -> Answer:
    known = {"If-None-Match": etag, "If-Modified-Since": modified}
    request = Request(address(url), headers={name: value for name, value in known.items() if value})
    try:
        with urlopen(request, timeout=TIMEOUT) as answer:
            page = read(answer.read(LARGEST), answer.headers.get("Link", ""))
            return Answer(answer.status, answer.headers, page)
    except HTTPError as refusal:
        with refusal:
            if refusal.code == 304:
                return Answer(304, refusal.headers, None)
            raise Refused(url, refusal.code, refusal.headers) from None


def read(body: bytes, link: str = "") -> FeedContents:
    """Parse RSS 2.0; raises if the body is no feed."""
    channel = Xml.fromstring(body).find("channel")
    if channel is None:
        raise ValueError("this is XML, but no RSS: it has no <channel>")
    ttl = channel.findtext("ttl", "").strip()
    hubs = [at.get("href") for at in channel.iter(f"{ATOM}link") if at.get("rel") == "hub"]
    match = re.search(r"<([^>]+)>\s*;[^,]*rel=\"?hub\b", link)
    return FeedContents(
        title=channel.findtext("title", ""),
        entries=[entry(item) for item in channel.iter("item")],
        ttl=int(ttl) if ttl.isdigit() else None,
        hub=match[1] if match else next(iter(hubs), None),
    )


def entry(item: Xml.Element) -> Entry:
    link = item.findtext("link", "")
    title = item.findtext("title", "")
    return Entry(item.findtext("guid") or link or title, title, link)
