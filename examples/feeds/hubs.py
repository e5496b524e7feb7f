"""WebSub: hubs tell of news in a feed, for a term. This asks for one, and knows who may confirm it."""

import os
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from examples.feeds.fetching import address

TERM = 5 * 86400  # seconds that we ask for; the hub decides
PATIENCE = 10.0


def callback(feed_id: str) -> str:
    """Where hubs reach server.py."""
    base = os.environ.get("FEEDS_CALLBACK", "http://127.0.0.1:8687")
    return f"{base}/websub/{feed_id}"


def ask(hub: str, topic: str, feed_id: str) -> str | None:
    """Ask for a term; what went wrong, if anything did. One hub that is down keeps no other from
    being asked."""
    form = {
        "hub.mode": "subscribe",
        "hub.topic": topic,
        "hub.callback": callback(feed_id),
        "hub.lease_seconds": TERM,
    }
    try:
        urlopen(address(hub), urlencode(form).encode(), timeout=PATIENCE).close()
    except (URLError, OSError, ValueError) as problem:
        return f"{hub} for {topic}: {problem}"
    return None
