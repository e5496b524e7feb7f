"""The paths of files, and a row for each file that a scan has added."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from examples.weather.sources import Found

FOLDER = Path(os.environ.get("WEATHER_FOLDER", "weather-data")).absolute()
DATABASE = Path(os.environ.get("WEATHER_DB", "weather.db")).absolute()

FILES = """
CREATE TABLE IF NOT EXISTS files (
    model_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    hour INTEGER NOT NULL,
    PRIMARY KEY (model_id, run_id, hour)
)
"""


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """Open a transaction on the database of the jobs: committed at the end of the block, or rolled
    back."""
    connection = sqlite3.connect(DATABASE, timeout=30, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
    finally:
        connection.close()  # what was not committed is undone


def claim_new(
    connection: sqlite3.Connection, model_id: str, listed: Sequence[Found]
) -> list[Found]:
    """Return the files that no scan has added yet, and record them in this transaction."""
    connection.execute(FILES)
    return [
        found
        for found in listed
        if connection.execute(
            "INSERT INTO files VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (model_id, *found)
        ).rowcount
    ]


def grib_path(model_id: str, run_id: str, hour: int) -> Path:
    return FOLDER / "gribs" / model_id / run_id / f"f{hour:03}.grib2"


def tile_path(model_id: str, run_id: str, hour: int, region: str) -> Path:
    return FOLDER / "tiles" / model_id / run_id / f"f{hour:03}" / f"{region}.npz"


def put(scratch: Path, place: Path) -> None:
    """Copy a file to its place atomically. Idempotent."""
    place.parent.mkdir(parents=True, exist_ok=True)
    half = place.with_name(f".{place.name}.{os.getpid()}")
    half.write_bytes(scratch.read_bytes())  # scratch folders may be on another disk
    os.replace(half, place)
