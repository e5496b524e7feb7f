"""What people do: subscribe and unsubscribe. Each is one transaction, in which the job, the feed and
the subscription change together.

    python -m examples.feeds.reader subscribe ann https://example.org/feed.xml
    python -m examples.feeds.reader unsubscribe ann https://example.org/feed.xml
    python -m examples.feeds.reader list ann
"""

import sys

import sqlalchemy as sql
from sqlalchemy import Connection, Table

from examples.feeds import store
from examples.feeds.app import app, fetch_feed, key, transaction
from examples.feeds.fetching import address
from examples.feeds.store import feeds, subscriptions, users
from holdfast import Job

READ = """
SELECT EXISTS (SELECT 1 FROM subscriptions WHERE feed_id = :feed AND unsubscribed_at IS NULL)
"""


def subscribe(user: str, url: str) -> Job:
    """To a new feed or a known one, once or again: the same few lines. The row of the job is made and
    due now, or it is enabled and keeps its next run."""
    with transaction() as tx:
        now = app.clock.now()
        feed_id = added(tx, feeds, url=address(url))  # of two with a new one, the second waits
        row = {"user_id": added(tx, users, name=user), "feed_id": feed_id, "subscribed_at": now}
        store.put(tx, subscriptions, row, {"subscribed_at": now, "unsubscribed_at": None})
        job = fetch_feed.using(key=key(feed_id), tx=tx).schedule(feed_id=feed_id)
        store.mirror(tx, job)
    return job


def unsubscribe(user: str, url: str) -> Job:
    """The subscription stays, with its end. The job is disabled if nobody is left; that is decided
    after its row is locked, so that of two that leave at once the later one knows of the earlier."""
    with transaction() as tx:
        reader, feed_id = found(tx, users, name=user), found(tx, feeds, url=url)
        mine = (subscriptions.c.user_id == reader) & (subscriptions.c.feed_id == feed_id)
        going = subscriptions.update().where(mine, subscriptions.c.unsubscribed_at.is_(None))
        tx.execute(going.values(unsubscribed_at=app.clock.now()))
        job = fetch_feed.using(key=key(feed_id), tx=tx).sync(enabled=(READ, {"feed": feed_id}))
        store.mirror(tx, job)
    return job


def added(tx: Connection, table: Table, **name: str) -> str:
    """The id of this user or feed, who is made if need be."""
    store.put(tx, table, {"id": store.new_id(), **name})
    return found(tx, table, **name)


def found(tx: Connection, table: Table, **name: str) -> str:
    id = tx.execute(sql.select(table.c.id).filter_by(**name)).scalar()
    if id is None:
        raise LookupError(f"{table.name}: there is no {name}: somebody has to subscribe first")
    return str(id)


def reading(user: str) -> list[sql.Row[tuple[str, str, object, int]]]:
    """What somebody reads, with the next fetch of each."""
    shown = sql.select(
        feeds.c.url, feeds.c.title, feeds.c.next_fetch_at, feeds.c.consecutive_failures
    )
    with transaction() as tx:
        joined = shown.join(subscriptions).join(users).where(users.c.name == user)
        return list(tx.execute(joined.where(subscriptions.c.unsubscribed_at.is_(None))))


if __name__ == "__main__":
    verb, user, *urls = sys.argv[1:]
    store.create(app.url)
    for url in urls:
        job = {"subscribe": subscribe, "unsubscribe": unsubscribe}[verb](user, url)
        print(url, "next at" if job.enabled else "is not fetched any more; was due", job.run_at)
    if verb == "list":
        print(*reading(user), sep="\n")
