"""The jobs of the directory, and their concurrency limit."""

import asyncio

from examples.podcasts import feeds, store
from holdfast import Context, Holdfast

app = Holdfast(f"sqlite:///{store.PATH}")  # beside the podcasts, in the same file


# At most three run concurrently over all servers: counted in the database. A failed run is retried
# twice; a feed that is gone for good is not.
@app.task(concurrency=3, max_attempts=3, timeout="5m", discard_on=(feeds.FeedGone,))
async def podcast_import(ctx: Context, podcast_id: str) -> dict[str, int]:
    """Fetch a podcast's feed and store its episodes."""
    ctx.progress(10, "fetching the feed")
    text = await feeds.fetch(store.url_of(podcast_id))
    ctx.progress(60, "reading it")
    feed = feeds.parse(text)
    ctx.enqueue(analytics, podcast_id=podcast_id)
    # In a thread, so that the server's event loop does not wait for a lock.
    return await asyncio.to_thread(keep, ctx, podcast_id, feed)


def keep(ctx: Context, podcast_id: str, feed: feeds.Feed) -> dict[str, int]:
    """Commit the episodes, the end of the job and the job that follows in one transaction."""
    result = {"episodes": len(feed.episodes)}
    with store.transaction() as connection:
        store.keep(connection, podcast_id, feed)
        ctx.complete(result, tx=connection)
    return result


@app.task
def analytics(podcast_id: str) -> dict[str, int]:
    """Add up the minutes of all episodes."""
    with store.transaction() as connection:
        return {"minutes": store.add_up(connection, podcast_id)}
