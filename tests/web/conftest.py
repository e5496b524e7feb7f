"""An application with a few tasks, a server of it, and somebody of every role, on both engines."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Discard, Holdfast, Job
from holdfast.worker.liveness import claim_watch
from tests.conftest import Database
from tests.support.waiting import finished
from tests.support.web import Caller, Site

Open = Callable[..., Site]


class Gate:
    """Tasks that wait, until a test lets them go on."""

    def __init__(self) -> None:
        self.open = threading.Event()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def app(
    database: Database, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> Holdfast:
    monkeypatch.setattr(claim_watch, "LOOK", claim_watch.LOOK / 5)
    app = database.app(backoff=0.05, poll_interval=0.2, workdir=tmp_path / "work")
    define(app, gate)
    return app


def define(app: Holdfast, gate: Gate) -> None:
    @app.task(name="enrich-metadata")
    def enrich(entity_type: str, entity_id: int | str, manual: bool = False) -> dict[str, Any]:
        """Fetch what is known about an entity."""
        return {"entity_type": entity_type, "entity_id": entity_id, "manual": manual}

    @app.task
    def add(a: int, b: int = 0) -> int:
        return a + b

    @app.task
    def echo(**data: Any) -> dict[str, Any]:
        return data

    @app.task(max_attempts=2)
    def fail(ctx: Context, reason: str = "no") -> None:
        raise RuntimeError(f"{reason} (attempt {ctx.attempt})")

    @app.task
    def refuse() -> None:
        raise Discard("never")

    @app.task(concurrency=5)
    async def stay(ctx: Context, n: int = 0) -> None:
        ctx.progress(50, "staying")
        while not gate.open.is_set() and not ctx.cancelled:
            await asyncio.sleep(0.01)

    @app.task
    def tick(name: str = "x") -> str:
        return name


@pytest.fixture
def open_site(app: Holdfast) -> Iterator[Open]:
    """Another server of the same application, with other options."""
    opened: list[Site] = []

    def make(**options: Any) -> Site:
        site = Site(app, **options)
        opened.append(site)
        return site

    yield make
    for site in opened:
        site.close()


@pytest.fixture
def site(open_site: Open) -> Site:
    return open_site()


@pytest.fixture
def admin(site: Site) -> Caller:
    return site.somebody("admin")


@pytest.fixture
def operator(site: Site) -> Caller:
    return site.somebody("operator")


@pytest.fixture
def viewer(site: Site) -> Caller:
    return site.somebody("viewer")


def run_all(app: Holdfast, *jobs: Job | str) -> None:
    """By a real worker, until all of them have ended."""
    with app.worker():
        for job in jobs:
            ended(app, job)


def ended(app: Holdfast, job: Job | str) -> Job:
    id = job if isinstance(job, str) else job.id
    return finished(app, app.jobs.get(id))
