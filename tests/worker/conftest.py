"""Applications whose settings make waiting short, and the module of `process=True` tasks, imported
anew for each test's database."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.worker.liveness import claim_watch
from tests.conftest import Database


def quick(database: Database, folder: Path, **options: Any) -> Holdfast:
    return database.app(
        **{"backoff": 0.05, "poll_interval": 0.2, "workdir": folder / "work", **options}
    )


LOOK = claim_watch.LOOK  # as shipped


@pytest.fixture(autouse=True)
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the claim watch look five times as often, so that tests wait less."""
    monkeypatch.setattr(claim_watch, "LOOK", LOOK / 5)


@pytest.fixture(autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """No handler process outlives its test."""
    yield
    left = [
        pid for pid in children() if b"holdfast.worker.processes.handler_process" in command_of(pid)
    ]
    assert left == [], f"processes left running: {left}"


def children() -> list[int]:
    """Return the child processes of this process, from /proc."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.append(int(folder.name))
    return found


def command_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Holdfast:
    return quick(database, tmp_path)


@pytest.fixture
def processes(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`tests.worker.process_tasks`, with an `app` on this test's database. Its child processes import
    it too, and find the database in the environment."""
    monkeypatch.setenv("HOLDFAST_TEST_URL", database.url)
    monkeypatch.setenv("HOLDFAST_TEST_SCHEMA", database.schema)
    monkeypatch.setenv("HOLDFAST_TEST_FOLDER", str(tmp_path))
    database.engine().migrate()
    name = "tests.worker.process_tasks"
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    database.opened.append(module.app)
    return module
