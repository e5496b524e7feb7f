"""The reader's jobs. Each feed has one recurring row, due again after each fetch; another renews
WebSub.

    holdfast worker examples.feeds.app:app

Run as many of these as you like, on as many machines: a row is claimed by one of them.
"""

import os
from contextlib import AbstractContextManager
from datetime import datetime, timedelta

import sqlalchemy as sql
from sqlalchemy import Connection

from examples.feeds import fetching, hints, hubs, store
from examples.feeds.store import entries, feeds, websub
from holdfast import Backoff, Context, Holdfast, Job, Retry, RunEnd

app = Holdfast()  # the database of HOLDFAST_URL; by default SQLite in this folder


def create() -> None:
    """Create the tables of Holdfast and of the reader, once for each release."""
    app.migrate()
    store.create(app.url)


def transaction() -> AbstractContextManager[Connection]:
    """Open a transaction over our own tables and the jobs, which are in one database."""
    return store.transaction(app.url)


def key(feed_id: str) -> str:
    return f"feed:{feed_id}"


def job_of(tx: Connection, feed_id: str) -> Job:
    """Return the job of a feed, as this transaction leaves it."""
    return app.schedules.get("fetch_feed", key(feed_id), tx=tx)


# --- a fetch -------------------------------------------------------------------------


def failed(end: RunEnd) -> None:
    """Hook of every failed run: show at the feed when it is fetched again."""
    with transaction() as tx:
        end.finish(tx=tx)
        store.mirror(tx, job_of(tx, end.job.payload["feed_id"]))


backoff = Backoff(delay=os.environ.get("FEEDS_BACKOFF", "1m"), multiplier=2, cap="6h", jitter=0)


@app.task(timeout="5m", backoff=backoff, on_failure=failed)
def fetch_feed(ctx: Context, feed_id: str) -> None:
    with transaction() as tx:
        feed = tx.execute(feeds.select().where(feeds.c.id == feed_id)).one()
    try:
        answer = fetching.fetch(feed.url, feed.etag, feed.modified)
    except fetching.Refused as refusal:
        after = hints.retry_after(refusal.headers, app.clock.now())
        if after is None:
            raise  # by the backoff
        raise Retry(str(refusal), after=after) from refusal
    ttl = answer.page.ttl if answer.page else feed.ttl
    ctx.next_run(after=hints.wait(answer.headers, ttl, app.clock.now()))
    with transaction() as tx:  # the entries, the end of the run and the mirror: all, or nothing
        ctx.complete({"status": answer.status}, tx=tx)
        keep(tx, feed_id, answer)
        store.mirror(tx, job_of(tx, feed_id))


def keep(tx: Connection, feed_id: str, answer: fetching.Answer) -> None:
    """Store new entries. Known entries are not changed, since a fetch may be repeated."""
    if answer.page is None:
        return
    page, headers = answer.page, answer.headers
    seen = {"title": page.title, "ttl": page.ttl}
    said = {"etag": headers.get("ETag"), "modified": headers.get("Last-Modified")}
    tx.execute(feeds.update().where(feeds.c.id == feed_id).values(**seen, **said))
    for entry in page.entries:
        store.put(tx, entries, {"feed_id": feed_id, **entry._asdict()})
    if page.hub:
        store.put(tx, websub, {"feed_id": feed_id, "hub": page.hub}, {"hub": page.hub})


# --- WebSub --------------------------------------------------------------------------

AHEAD = timedelta(hours=24)


@app.task(every="1d")  # a worker makes its row at start-up, if there is none
def renew_websub() -> int:
    """Ask the hubs to renew every lease that ends within a day. They confirm by calling us back
    (server.py), which sets `expires_at`."""
    with transaction() as tx:
        ending = expiring(tx, app.clock.now() + AHEAD)
    problems = [
        problem for one in ending if (problem := hubs.request_lease(one.hub, one.url, one.feed_id))
    ]
    if problems:
        raise RuntimeError(f"{len(problems)} of {len(ending)}: " + "; ".join(problems))
    return len(ending)


def expiring(tx: Connection, end: datetime) -> list[sql.Row[tuple[str, str, str]]]:
    """Return the leases that end by then, and those that no hub has confirmed yet."""
    soon = sql.or_(websub.c.expires_at <= end, websub.c.expires_at.is_(None))
    found = sql.select(websub.c.feed_id, websub.c.hub, feeds.c.url).join(feeds).where(soon)
    return list(tx.execute(found.order_by(feeds.c.url)))
