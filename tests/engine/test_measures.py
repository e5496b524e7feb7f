"""What an engine tells of its size and its tables."""

from datetime import timedelta

from holdfast.engine.engine import Engine
from tests.conftest import Database
from tests.support.jobs import new


def test_the_size_of_the_database_is_measured(engine: Engine):
    before = engine.doctor.measure().sizes
    engine.insert([new(payload='{"text":"' + 100 * "x" + '"}') for _ in range(1000)])
    after = engine.doctor.measure().sizes
    assert after.database > 0
    grown = (after.database + (after.log or 0)) - (before.database + (before.log or 0))
    assert grown > 100_000, "a thousand jobs take room"


def test_the_sizes_of_tables_are_measured(database: Database, engine: Engine):
    engine.open()
    tables = engine.doctor.measure().sizes.tables
    if database.kind == "postgres":
        assert tables["jobs"] > 0
        assert "migrations" in tables
    else:
        assert tables == {}, "SQLite would have to walk through every page"


def test_applied_migrations_are_listed(engine: Engine):
    applied = engine.migrate()
    measures = engine.doctor.measure()
    assert measures.migrations[0][0].startswith("0001_")
    assert not applied or [name for name, _ in measures.migrations] == applied
    assert measures.migrations[-1][1].utcoffset() == timedelta(0)
    assert measures.version.startswith(("SQLite 3.", "PostgreSQL 1"))
