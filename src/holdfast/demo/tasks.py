"""The application of the demonstration: a media site with a task for every kind of handler.

    holdfast demo                                                     shows it all in one process
    HOLDFAST_URL=sqlite:///demo.db holdfast worker holdfast.demo.tasks:app -q demo,demo.media

It has queues of its own, so that its worker takes no other jobs of a shared database.
"""

import asyncio
import hashlib
import os
import random

from holdfast import Backoff, Context, Discard, Holdfast, Limit

QUEUE, MEDIA = "demo", "demo.media"

app = Holdfast(auto_migrate=True, schema=os.environ.get("HOLDFAST_SCHEMA", "holdfast"))
_dice = random.Random()  # noqa: S311 - for variety


async def _steps(ctx: Context, number: int, text: str) -> None:
    """Pretend to work, with progress."""
    for step in range(number):
        ctx.progress(100 * step / number, text)
        await asyncio.sleep(_dice.uniform(0.1, 0.3))


@app.task(queue=QUEUE)
async def fetch_feed(feed: str) -> dict[str, int]:
    """Short and asynchronous: hundreds can run at the same time."""
    await asyncio.sleep(_dice.uniform(0.1, 0.6))
    return {"entries": _dice.randint(1, 40)}


@app.task(queue=MEDIA, priority=5)
async def transcode_video(ctx: Context, video: str) -> str:
    """Slow, with progress."""
    seconds = _dice.uniform(4.0, 9.0)
    steps = 40
    for step in range(steps):
        stage = "reading" if step < 4 else "encoding" if step < 34 else "writing"
        ctx.progress(100 * step / steps, f"{stage} {video}")
        await asyncio.sleep(seconds / steps)
    ctx.progress(100, "done")
    return f"{video}.webm"


@app.task(queue=QUEUE, max_attempts=4, backoff=Backoff(delay=0.8, jitter=0.1))
async def call_flaky_api(ctx: Context, order: int) -> str:
    """Fails once or twice, is retried, and succeeds."""
    await asyncio.sleep(0.2)
    if ctx.attempt <= 1 + order % 2:
        raise ConnectionError("503 Service Unavailable")
    return f"accepted at attempt {ctx.attempt}"


@app.task(queue=QUEUE)
def parse_upload(file: str) -> None:
    """Fails without a retry: another attempt would find the same file."""
    raise Discard(f"{file} is not a spreadsheet")


@app.task(queue=QUEUE)
async def send_reminder(to: str) -> str:
    """Scheduled: it runs after a delay."""
    await asyncio.sleep(0.1)
    return f"reminded {to}"


@app.task(queue=QUEUE)
async def import_podcast(ctx: Context, podcast: str) -> int:
    """Enqueues other jobs, in the same transaction that completes this one."""
    await asyncio.sleep(0.3)
    episodes = _dice.randint(1, 3)
    for number in range(1, episodes + 1):
        ctx.enqueue(fetch_episode, podcast=podcast, number=number)
    return episodes


@app.task(queue=QUEUE)
async def fetch_episode(ctx: Context, podcast: str, number: int) -> str:
    """A job that another job enqueued."""
    await _steps(ctx, 10, f"{podcast} #{number}")
    return f"{podcast}-{number}.mp3"


@app.task(queue=MEDIA)
def resize_image(ctx: Context, image: str) -> list[int]:
    """A plain function, which runs in a thread; `ctx.wait` returns early when it should stop."""
    sizes = [320, 640, 1280]
    for done, size in enumerate(sizes):
        ctx.progress(100 * done / len(sizes), f"{size} pixels")
        if ctx.wait(_dice.uniform(0.3, 0.9)):
            return []
    return sizes


@app.task(queue=MEDIA, process=True)
def checksum_archive(ctx: Context, archive: str) -> str:
    """CPU-bound, in a process of its own, so that it does not slow other jobs."""
    digest = hashlib.sha256(archive.encode())
    rounds = 20
    for round in range(rounds):
        ctx.progress(100 * round / rounds, f"block {round + 1} of {rounds}")
        digest.update(hashlib.pbkdf2_hmac("sha256", digest.digest(), b"demo", 120_000))
    return digest.hexdigest()[:16]


@app.task(queue=QUEUE, concurrency=Limit(2, name="partner-api"), max_attempts=2)
async def sync_partner(partner: str) -> str:
    """At most two run at the same time, across all workers. Some partners send wrong prices."""
    await asyncio.sleep(_dice.uniform(0.4, 1.0))
    if partner == "initech":
        raise Discard(f"partner {partner} sent a price of -{_dice.randint(1, 99)}")
    return f"{partner} is up to date"


@app.task(queue=QUEUE, every="5s")
async def refresh_trends() -> str:
    """Recurring: one row, which is scheduled again after each run."""
    await asyncio.sleep(0.2)
    return f"{_dice.randint(3, 9)} titles go up"


@app.task(queue=MEDIA, max_attempts=1)
def read_subtitles(file: str) -> int:
    """Fails in several ways, which the errors page shows as groups."""
    if file.endswith(".txt"):
        return {"en": 1}[file.partition("-")[0]]
    return int(file.partition(".")[0].rpartition("-")[2], 8)


@app.task(queue=MEDIA)
async def scan_film(film: str) -> int:
    """The first job of a workflow."""
    await asyncio.sleep(_dice.uniform(0.3, 0.8))
    return 3


@app.task(queue=MEDIA)
async def encode_part(ctx: Context, film: str, quality: str) -> str:
    """The middle of the workflow: several jobs run at the same time."""
    await _steps(ctx, 8, f"{film} in {quality}")
    return f"{film}-{quality}"


@app.task(queue=QUEUE)
async def publish_film(ctx: Context, film: str) -> list[str]:
    """The last job of the workflow: it runs when all parts are done."""
    parts = await ctx.aresults()
    return [str(part) for part in parts.values()]
