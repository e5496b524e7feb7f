"""When a feed wants to be fetched again, by its own word. Thinks only: no clock, no network."""

import os
import re
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import NamedTuple


class Bounds(NamedTuple):
    """What we do whatever a feed says."""

    shortest: timedelta = timedelta(seconds=float(os.environ.get("FEEDS_SHORTEST", "60")))
    longest: timedelta = timedelta(days=1)
    usual: timedelta = timedelta(hours=1)  #: for those that say nothing


def wait(
    headers: Message, ttl: int | None, now: datetime, bounds: Bounds | None = None
) -> timedelta:
    """The longer of what HTTP says of the answer and what the feed says of itself, within bounds."""
    bounds = bounds or Bounds()
    said = [fresh(headers, now), None if ttl is None else timedelta(minutes=ttl)]
    wanted = max((one for one in said if one is not None), default=bounds.usual)
    return min(max(wanted, bounds.shortest), bounds.longest)


def fresh(headers: Message, now: datetime) -> timedelta | None:
    """How long an answer is good: by max-age, else by Expires (RFC 9111); None: it does not say."""
    if found := re.search(r"\bmax-age=\"?(\d{1,9})", headers.get("Cache-Control", ""), re.I):
        return timedelta(seconds=int(found[1]))
    return until(headers.get("Expires"), now)


def until(date: str | None, now: datetime) -> timedelta | None:
    """How far ahead a date of HTTP is."""
    try:
        moment = parsedate_to_datetime(date or "")
    except ValueError:  # "0" and the like: it says nothing
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC) - now


def retry_after(headers: Message, now: datetime) -> timedelta | None:
    """When a server that has refused us wants to be asked again: seconds, or a date."""
    text = headers.get("Retry-After", "").strip()
    wanted = timedelta(seconds=int(text[:9])) if text.isdigit() else until(text, now)
    return None if wanted is None else min(max(wanted, timedelta()), Bounds().longest)
