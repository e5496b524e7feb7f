"""What a user does: subscribe and unsubscribe. Each is one transaction, in which the job, the feed and
the subscription change together.

    python -m examples.feeds.reader create
    python -m examples.feeds.reader subscribe ann https://example.org/feed.xml
    python -m examples.feeds.reader unsubscribe ann https://example.org/feed.xml
    python -m examples.feeds.reader list ann
"""

import sys
from typing import Any

import sqlalchemy as sql
from sqlalchemy import Connection, Table

from examples.feeds import store
from examples.feeds.app import app, create, fetch_feed, key, transaction
from examples.feeds.fetching import address
from examples.feeds.store import feeds, subscriptions, users
from holdfast import Job

READ = """
SELECT EXISTS (SELECT 1 FROM subscriptions WHERE feed_id = :feed AND unsubscribed_at IS NULL)
"""


def subscribe(user: str, url: str) -> Job:
    """Subscribe to a new or a known feed, for the first time or again. The row of the job is made and
    due now, or it is enabled and keeps its next run."""
    with transaction() as tx:
        now = app.clock.now()
        feed_id = added(
            tx, feeds, url=address(url)
        )  # of two that add the same feed, the second waits
        row = {"user_id": added(tx, users, name=user), "feed_id": feed_id, "subscribed_at": now}
        store.put(tx, subscriptions, row, {"subscribed_at": now, "unsubscribed_at": None})
        job = fetch_feed.using(key=key(feed_id), tx=tx).schedule(feed_id=feed_id)
        store.mirror(tx, job)
    return job


def unsubscribe(user: str, url: str) -> Job:
    """Set the end of the subscription, which is kept. Without subscribers the job is disabled. That is
    decided after its row is locked: of two concurrent calls the later one sees the earlier."""
    with transaction() as tx:
        reader, feed_id = found(tx, users, name=user), found(tx, feeds, url=url)
        mine = (subscriptions.c.user_id == reader) & (subscriptions.c.feed_id == feed_id)
        going = subscriptions.update().where(mine, subscriptions.c.unsubscribed_at.is_(None))
        tx.execute(going.values(unsubscribed_at=app.clock.now()))
        job = fetch_feed.using(key=key(feed_id), tx=tx).sync(enabled=(READ, {"feed": feed_id}))
        store.mirror(tx, job)
    return job


def added(tx: Connection, table: Table, **name: str) -> str:
    """Return the id of this user or feed, which is made if it is new."""
    store.put(tx, table, {"id": store.new_id(), **name})
    return found(tx, table, **name)


def found(tx: Connection, table: Table, **name: str) -> str:
    id = tx.execute(sql.select(table.c.id).filter_by(**name)).scalar()
    if id is None:
        raise LookupError(f"{table.name}: there is no {name}: subscribe first")
    return str(id)


def reading(user: str) -> list[sql.Row[Any]]:
    """Return the feeds of a user, with the next fetch of each."""
    mine = subscriptions.join(users).join(feeds)
    shown = sql.select(feeds.c.url, feeds.c.title, feeds.c.next_fetch_at).select_from(mine)
    reads = (users.c.name == user) & subscriptions.c.unsubscribed_at.is_(None)
    with transaction() as tx:
        return list(tx.execute(shown.where(reads).order_by(feeds.c.url)))


def main(verb: str, user: str = "", *urls: str) -> None:
    match verb:
        case "create":
            create()
        case "subscribe":
            for url in urls:
                print(f"{url}: next at {subscribe(user, url).run_at}")
        case "unsubscribe":
            for url in urls:
                print(
                    f"{url}: {'others subscribe' if unsubscribe(user, url).enabled else 'disabled'}"
                )
        case "list":
            for feed in reading(user):
                print(f"{feed.url}: {feed.title}, next at {feed.next_fetch_at}")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["help"]))
