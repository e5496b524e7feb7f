"""The phases of a media manager as tasks: scan-library, enrich-metadata, publish-assets, sync-player.

Each phase does its work, checks whether the next one is enabled, and commits three things in one
transaction: its rows, its own completion, and the next job. Whenever the process dies, either all
three are committed or none.
"""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from examples.media_manager import store
from examples.media_manager.provider import PERMANENT, Provider, place_file
from examples.media_manager.settings import (
    Level,
    Phases,
    Settings,
    inherited,
    read_settings,
    to_priority,
)
from holdfast import Context, Holdfast, Limit, Middleware, Task


class LogFailures(Middleware):
    """Log every failed run in the log of its job."""

    def run(self, ctx: Context, proceed: Callable[[], Any]) -> Any:
        try:
            return proceed()
        except Exception as problem:
            ctx.log.warning("attempt %d of %s: %r", ctx.attempt, ctx.job.type, problem)
            raise


settings: Settings = read_settings()
app = Holdfast(
    settings.database,
    auto_migrate=True,
    poll_interval=settings.worker.poll_interval / 1000,
    timeout=settings.worker.timeout / 1000,
    max_attempts=settings.worker.max_retries,
    backoff=settings.worker.backoff,
    retention={"completed": "30d", "failed": "90d", "cancelled": "30d"},
    unreadable_for=0,  # by the design, a malformed payload fails immediately
    health={"failure_rate": 0.05},
    middleware=[LogFailures()],
)
db = store.Store(settings.database, settings.database_timeout)
provider = Provider(settings.provider, settings.provider_name, settings.provider_timeout)
players = httpx.Client(timeout=settings.provider_timeout)

NORMAL, BACKGROUND = to_priority(Level.NORMAL), to_priority(Level.BACKGROUND)
FILMS = (".mkv", ".mp4", ".avi")
TITLE = re.compile(r"(?P<title>.+?)(?: \((?P<year>\d{4})\))?")


def phases() -> Phases:
    """Read the switches of the phases again, since they may change while jobs run."""
    return read_settings().phases


def follow(
    ctx: Context, phase: Task[..., Any], entity: tuple[str, int], manual: bool, **more: str
) -> None:
    """Enqueue the next phase with this one's urgency, if and only if this one completes."""
    job = phase.using(priority=to_priority(inherited(manual)), entity=entity)
    kind, id = entity
    ctx.enqueue(job, entity_type=kind, entity_id=id, manual=manual, **more)


# --- scan ---------------------------------------------------------------------------


# One at a time for each library: the hourly scan and a webhook's may coincide.
@app.task(
    name="scan-library",
    priority=NORMAL,
    discard_on=PERMANENT,
    concurrency=Limit(1, per="entity_id"),
)
def scan_library(
    ctx: Context, entity_type: str, entity_id: int, manual: bool = False
) -> dict[str, Any]:
    """Discover media files."""
    if ctx.job.schedule is not None and not phases().scanning.enabled:
        return {"found": 0, "new": 0}  # only the hourly scan can be switched off
    with db.begin() as tx:
        library = store.find_library(tx, entity_id)
    found = list(_media_in(Path(library.path)))
    ctx.progress(50, f"Found {len(found)} titles")
    with db.begin() as tx:
        new = store.add_media(tx, entity_id, found)
        if phases().then_enrich():
            for row in new:
                follow(ctx, enrich_metadata, (row.kind, row.id), manual)
        else:
            ctx.log.info("enrichment is off, the chain ends here")
        ctx.progress(100, "Scan complete")
        result = {"found": len(found), "new": len(new)}
        ctx.complete(result, tx=tx)
    return result


def _media_in(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the media of a folder: a file is a film, a folder a series."""
    for path in sorted(folder.iterdir()):
        match = TITLE.fullmatch(path.stem if path.is_file() else path.name)
        if match and (path.is_dir() or path.suffix in FILMS):
            year = match["year"] and int(match["year"])
            kind = "series" if path.is_dir() else "movie"
            yield {"kind": kind, "path": str(path), "title": match["title"], "year": year}


# --- enrich -------------------------------------------------------------------------


@app.task(
    name="enrich-metadata",
    priority=NORMAL,
    discard_on=PERMANENT,
    rate=settings.provider_rate,  # the provider has limits of its own: stay below them
)
def enrich_metadata(
    ctx: Context, entity_type: str, entity_id: int, manual: bool = False
) -> dict[str, Any]:
    """Fetch metadata and assets."""
    with db.begin() as tx:
        item = store.find_media(tx, entity_type, entity_id)
    ctx.progress(10, f"Fetching metadata from {settings.provider_name}")
    details = provider.details(item.kind, item.title, item.year)
    ctx.progress(30, "Fetching asset candidates")
    images = provider.images(item.kind, details["id"])
    ctx.progress(50, "Downloading selected assets")
    files = {}
    for number, image in enumerate(images, 1):
        files[image["name"]] = provider.download(
            image["url"], settings.cache, ctx.workdir, lambda: ctx.cancelled
        )
        ctx.progress(50 + number / len(images) * 40, f"Downloaded {number}/{len(images)} assets")
    ctx.progress(90, "Saving to database")
    result = {"assetsDownloaded": len(files), "metadataUpdated": True}
    with db.begin() as tx:
        store.save_metadata(tx, item.id, details, files)
        if phases().then_publish():
            folder = str(Path(item.path).parent)
            follow(ctx, publish_assets, (item.kind, item.id), manual, library_path=folder)
        else:
            ctx.log.info("publishing is off, the chain ends here")
        ctx.progress(100, "Enrichment complete")
        ctx.complete(result, tx=tx)
    return result


# --- publish ------------------------------------------------------------------------


@app.task(name="publish-assets", priority=NORMAL, discard_on=PERMANENT)
def publish_assets(
    ctx: Context, entity_type: str, entity_id: int, library_path: str, manual: bool = False
) -> dict[str, Any]:
    """Copy the cached assets to the library, beside the film."""
    with db.begin() as tx:
        item = store.find_media(tx, entity_type, entity_id)
        files = store.assets_of(tx, entity_id)
    for number, (name, file) in enumerate(files.items(), 1):
        target = Path(library_path) / f"{Path(item.path).stem}-{name}"
        place_file(settings.cache / file, target)
        ctx.progress(number / len(files) * 100, f"Published {name}")
    with db.begin() as tx:
        store.set_published(tx, entity_id)
        if phases().then_sync():
            for player in settings.players:
                follow(ctx, sync_player, ("player", player), manual, changed=item.path)
        else:
            ctx.log.info("syncing is off, the chain ends here")
        ctx.complete({"published": len(files)}, tx=tx)
    return {"published": len(files)}


# --- sync ---------------------------------------------------------------------------


@app.task(name="sync-player", priority=NORMAL, discard_on=PERMANENT)
def sync_player(
    ctx: Context,
    entity_type: str,
    entity_id: int,
    changed: str | None = None,
    manual: bool = False,
) -> dict[str, Any]:
    """Notify a player of a change. The player recognizes a repeated call by the job's id."""
    if entity_id not in settings.players:
        raise store.EntityGone(f"there is no player {entity_id}: it was taken out of the settings")
    address, key = settings.players[entity_id], {"Idempotency-Key": ctx.job.id}
    answer = players.post(address, json={"path": changed}, headers=key)
    answer.raise_for_status()
    return {"player": entity_id, "changed": changed}


# --- maintenance of the cache --------------------------------------------------------


@app.task(name="verify-cache", cron="0 4 * * *", priority=BACKGROUND)
def verify_cache(ctx: Context) -> dict[str, Any]:
    """Find assets that are missing in the cache."""
    with db.begin() as tx:
        known = sorted(store.cached_files(tx))
    missing = [name for name in known if not (settings.cache / name).is_file()]
    return {"checked": len(known), "missing": missing}


@app.task(name="cleanup-orphans", cron="30 4 * * *", priority=BACKGROUND)
def cleanup_orphans(ctx: Context) -> dict[str, Any]:
    """Remove cached files that no row refers to."""
    with db.begin() as tx:
        known = store.cached_files(tx)
    oldest = time.time() - settings.orphan_age
    removed = []
    for file in settings.cache.iterdir():
        if file.name not in known and file.stat().st_mtime <= oldest:
            file.unlink(missing_ok=True)
            removed.append(file.name)
    return {"removed": len(removed)}


def schedule_scan(tx: Any, library: int) -> None:
    """Schedule the hourly scan of a library, the first one now, in the library's transaction."""
    scan_library.using(
        key=f"library:{library}",
        every=settings.phases.scanning.every,
        entity=("library", library),
        tx=tx,
    ).schedule("library", library)
