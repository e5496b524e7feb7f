"""The jobs: scan_source -> ingest_grib -> build_tile. What a scan finds becomes a workflow, the newest
run of a model first."""

import os

from examples.weather import grib, sources, store, tiles
from holdfast import Context, Holdfast

app = Holdfast(f"sqlite:///{store.DATABASE}")

REGIONS = tuple(os.environ.get("WEATHER_REGIONS", "ne,se,w").split(","))
SCAN = 10**12  # before every run: a scan is short, and may find a newer one


def start_scan(model_id: str) -> str:
    """Start the workflow of one scan, which grows by what the scan finds; returns its id."""
    with app.workflow(f"scan-{model_id}") as flow:
        flow.add(scan_source, model_id=model_id)
    return flow.id


def priority_of(run_id: str) -> int:
    """Return 2023012512 for the run 20230125_12: a newer run has a higher number, and runs first."""
    return int(run_id.replace("_", ""))


@app.task(priority=SCAN)
def scan_source(ctx: Context, model_id: str) -> dict[str, int]:
    """Find files that no scan has added yet, and add jobs for them.

    The files' keys, the jobs for them and the end of this job are one transaction: a file is added
    once, by the scan that commits first, and a scan that dies before has changed nothing.
    """
    listed = sources.listing(model_id)
    ctx.log.info("%s has %d files", model_id, len(listed))
    with store.transaction() as connection:
        new = store.claim_new(connection, model_id, listed)
        for found in new:
            add_file(ctx, model_id, *found)
        result = {"listed": len(listed), "new": len(new)}
        ctx.complete(result, tx=connection)
    return result


def add_file(ctx: Context, model_id: str, run_id: str, hour: int) -> None:
    """Add the jobs of a file: its download, and then a tile for each region."""
    file = {"model_id": model_id, "run_id": run_id, "hour": hour}
    name, newest_first = f"{run_id}/f{hour:03}", priority_of(run_id)
    download = ctx.workflow.add(ingest_grib.using(node=name, priority=newest_first), **file)
    for region in REGIONS:
        tile = build_tile.using(node=f"{name}/{region}", priority=newest_first, after=[download])
        ctx.workflow.add(tile, **file, region=region)


@app.task(max_attempts=3)
def ingest_grib(ctx: Context, model_id: str, run_id: str, hour: int) -> dict[str, int]:
    """Download a file. It is visible only when it is complete."""
    scratch = ctx.workdir / "download"
    size = sources.download(model_id, run_id, hour, scratch)
    ctx.progress(80, f"{size} bytes")
    grib.check(scratch.read_bytes())
    store.put(scratch, store.grib_path(model_id, run_id, hour))
    return {"bytes": size}


@app.task
def build_tile(
    ctx: Context, model_id: str, run_id: str, hour: int, region: str
) -> dict[str, object]:
    """Cut a region out of a file, at every zoom level."""
    field = grib.decode(store.grib_path(model_id, run_id, hour).read_bytes())
    tile = tiles.make(field, region)
    scratch = ctx.workdir / "tile.npz"
    tiles.write(tile, scratch)
    place = store.tile_path(model_id, run_id, hour, region)
    store.put(scratch, place)
    return {"tile": str(place.relative_to(store.FOLDER)), "mean": float(tile.full.mean())}
