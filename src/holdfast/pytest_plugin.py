"""Fixtures that pytest loads by itself: `holdfast_clock` and `holdfast_app`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.core.clock import FakeClock


@pytest.fixture
def holdfast_clock() -> FakeClock:
    """Return a clock that a test moves: `holdfast_clock.advance(30)`."""
    return FakeClock()


@pytest.fixture
def holdfast_app(tmp_path: Path, holdfast_clock: FakeClock) -> Iterator[Holdfast]:
    """Yield an application with an empty SQLite database and the clock `holdfast_clock`."""
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with Holdfast(url, clock=holdfast_clock, workdir=tmp_path / "holdfast-work") as app:
        yield app
