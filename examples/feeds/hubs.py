"""WebSub: a hub announces changes of a feed for the time of a lease. This requests leases."""

import os
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from examples.feeds.fetching import address

TERM = 5 * 86400  # seconds that we request; the hub decides
TIMEOUT = 10.0


def callback(feed_id: str) -> str:
    """Return the address at which hubs reach server.py."""
    base = os.environ.get("FEEDS_CALLBACK", "http://127.0.0.1:8687")
    return f"{base}/websub/{feed_id}"


def request_lease(hub: str, topic: str, feed_id: str) -> str | None:
    """Request a lease; returns the problem, if there was one, so that one hub that is down does not
    keep the others from being asked."""
    form = {
        "hub.mode": "subscribe",
        "hub.topic": topic,
        "hub.callback": callback(feed_id),
        "hub.lease_seconds": TERM,
    }
    try:
        urlopen(address(hub), urlencode(form).encode(), timeout=TIMEOUT).close()
    except (URLError, OSError, ValueError) as problem:
        return f"{hub} for {topic}: {problem}"
    return None
