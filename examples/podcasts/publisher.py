"""A publisher of podcasts, for the checks of the directory: `python -m examples.podcasts.publisher`.

Its feeds are at /NAME.xml. `shaky-...` are there at the third request, `gone-...` never, and
`broken-...` are cut off in the middle.
"""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from xml.sax.saxutils import escape

from examples.remote_server import Answer, RemoteServer

BEGINNING = datetime(2030, 1, 1, 6, tzinfo=UTC)


def length(name: str) -> int:
    """Return the number of episodes of a podcast."""
    return 3 + sum(name.encode()) % 20


def minutes(name: str) -> int:
    """Return the sum of the minutes of its episodes."""
    return sum(10 + number for number in range(length(name)))


def feed(name: str) -> bytes:
    items = "".join(_item(name, number) for number in range(length(name)))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<rss version="2.0" xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd"><channel>'
        f"<title>{escape(title(name))}</title>{items}</channel></rss>"
    ).encode()


def title(name: str) -> str:
    return f"Ærø & Friends: {name}"


def _item(name: str, number: int) -> str:
    published = format_datetime(BEGINNING + timedelta(days=number))
    return (
        f"<item><guid>{name}-{number}</guid><title>Episode &lt;{number}&gt;</title>"
        f'<enclosure url="https://audio.example/{name}/{number}.mp3" type="audio/mpeg" length="1"/>'
        f"<pubDate>{published}</pubDate>"
        f"<itunes:duration>{10 + number}:00</itunes:duration></item>"
    )


def site(path: str, times: int) -> Answer:
    name = path.strip("/").removesuffix(".xml")
    if name.startswith("shaky-") and times < 3:
        return Answer(b"come back later", 503)
    if name.startswith("gone-"):
        return Answer(b"no such feed", 410)
    text = feed(name)
    return Answer(text[:200] if name.startswith("broken-") else text, 200, "application/rss+xml")


if __name__ == "__main__":
    remote = RemoteServer(site, pace=2.0, port=8010)
    print(f"feeds at {remote.url}/NAME.xml; each takes two seconds")
    remote.serve()
