"""A site without tasks, and the two ways to follow it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from tests.conftest import Database
from tests.web.serving import Site, serving
from tests.worker.conftest import quick

CARRIERS: dict[str, Callable[..., Any]] = {"ws": Site.socket, "sse": Site.sse}


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Holdfast:
    app = quick(database, tmp_path, max_attempts=2)
    app.migrate()
    return app


@pytest.fixture
def site(app: Holdfast) -> Iterator[Site]:
    with serving(app) as site:
        yield site


@pytest.fixture(params=list(CARRIERS))
def carrier(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return CARRIERS[request.param]
