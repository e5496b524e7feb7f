"""`command`: the command line, about the database of the test."""

from pathlib import Path

import pytest

from holdfast.engine.engine import Engine
from tests.cli.command import Command
from tests.conftest import Database


@pytest.fixture
def now(database: Database) -> Engine:
    """An engine by the real clock, as the command has it; the tables are made."""
    engine = database.engine()
    engine.open()
    return engine


@pytest.fixture
def local(tmp_path: Path) -> Command:
    """The same for what does not depend on the engine: a SQLite file that is not there yet."""
    return Command(Database("sqlite", f"sqlite:///{tmp_path}/jobs.db", "holdfast", []), tmp_path)


@pytest.fixture
def command(database: Database, tmp_path: Path, now: Engine) -> Command:
    return Command(database, tmp_path)
