"""When to fetch a feed again, by its headers and its ttl. Pure functions: no clock, no network."""

import os
import re
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import NamedTuple


class Bounds(NamedTuple):
    """Limits on the interval, whatever a feed says."""

    shortest: timedelta = timedelta(seconds=float(os.environ.get("FEEDS_SHORTEST", "60")))
    longest: timedelta = timedelta(days=1)
    usual: timedelta = timedelta(hours=1)  #: for feeds that say nothing


def wait(
    headers: Message, ttl: int | None, now: datetime, bounds: Bounds | None = None
) -> timedelta:
    """Return the longer of the HTTP freshness and the feed's own ttl, within bounds."""
    bounds = bounds or Bounds()
    said = [freshness(headers, now), None if ttl is None else timedelta(minutes=ttl)]
    wanted = max((one for one in said if one is not None), default=bounds.usual)
    return min(max(wanted, bounds.shortest), bounds.longest)


def freshness(headers: Message, now: datetime) -> timedelta | None:
    """Return how long an answer is fresh: by max-age, else by Expires (RFC 9111), else None."""
    if found := re.search(r"\bmax-age=\"?(\d{1,9})", headers.get("Cache-Control", ""), re.I):
        return timedelta(seconds=int(found[1]))
    return until(headers.get("Expires"), now)


def until(date: str | None, now: datetime) -> timedelta | None:
    """Return the time from now until an HTTP date."""
    try:
        parsed = parsedate_to_datetime(date or "")
    except ValueError:  # "0" and the like: no date
        return None
    return parsed.replace(tzinfo=parsed.tzinfo or UTC) - now


def retry_after(headers: Message, now: datetime) -> timedelta | None:
    """Return the delay of a Retry-After header, which holds seconds or a date."""
    text = headers.get("Retry-After", "").strip()
    wanted = timedelta(seconds=int(text[:9])) if text.isdigit() else until(text, now)
    return None if wanted is None else min(max(wanted, timedelta()), Bounds().longest)
