"""Tiles: a region of a field, at several zoom levels, each half as fine as the one before."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from examples.weather.grib import Field

# Rows and columns, as parts of the whole: north is up.
BOUNDS = {
    "ne": (slice(0.0, 0.5), slice(0.5, 1.0)),
    "se": (slice(0.5, 1.0), slice(0.5, 1.0)),
    "w": (slice(0.0, 1.0), slice(0.0, 0.5)),
}


class Tile(NamedTuple):
    full: Field
    half: Field
    quarter: Field


def cut(field: Field, region: str) -> Field:
    if region not in BOUNDS:
        raise ValueError(f"there is no region {region!r}: there are {', '.join(BOUNDS)}")
    rows, columns = (
        _part(part, size) for part, size in zip(BOUNDS[region], field.shape, strict=True)
    )
    return field[rows, columns]


def _part(part: slice, size: int) -> slice:
    return slice(round(part.start * size), round(part.stop * size))


def halve(field: Field) -> Field:
    """Return the field at half the resolution: each value is the mean of four neighbours."""
    height, width = (size // 2 * 2 for size in field.shape)
    blocks = field[:height, :width].reshape(height // 2, 2, width // 2, 2)
    means: Field = blocks.mean(axis=(1, 3), dtype=np.float32)
    return means


def make(field: Field, region: str) -> Tile:
    full = cut(field, region)
    half = halve(full)
    return Tile(full, half, halve(half))


def write(tile: Tile, to: Path) -> None:
    """Write a tile as a .npz file."""
    np.savez_compressed(to, full=tile.full, half=tile.half, quarter=tile.quarter)
