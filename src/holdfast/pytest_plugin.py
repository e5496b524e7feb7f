"""Fixtures for pytest, there without an import: `holdfast_clock` and `holdfast_app`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.core.clock import FakeClock


@pytest.fixture
def holdfast_clock() -> FakeClock:
    """Time that moves only when told to: `holdfast_clock.advance(30)`."""
    return FakeClock()


@pytest.fixture
def holdfast_app(tmp_path: Path, holdfast_clock: FakeClock) -> Iterator[Holdfast]:
    """An application on an empty SQLite database of its own, which tells the time by
    `holdfast_clock`."""
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with Holdfast(url, clock=holdfast_clock, workdir=tmp_path / "holdfast-work") as app:
        yield app
