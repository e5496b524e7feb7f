"""Both dialects have the same statements, except those that one of them does not need, file by file,
and none that no script runs."""

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.engine.script import FILES

PACKAGE = Path(holdfast.__file__).parent
ENGINES = ("sqlite", "postgres")
PYTHON = "\n".join(path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py")))


def text(engine: str) -> str:
    return "".join((PACKAGE / f"{name}.{engine}.sql").read_text("utf-8") for name in FILES)


def names(engine: str) -> list[str]:
    return re.findall(r"^-- name: (\w+)$", text(engine), re.MULTILINE)


# PostgreSQL keeps payloads and results in the rows of jobs, and claims jobs in one statement; SQLite
# has one writer at a time and locks no rows.
ONLY = {
    "sqlite": {"insert_payloads", "insert_results"},
    "postgres": {"claim", "claim_types", "lock_keys"},
}


def test_both_engines_have_the_same_statements_in_the_same_order():
    shared = {
        engine: [one for one in names(engine) if one not in ONLY[engine]] for engine in ENGINES
    }
    assert shared["sqlite"] == shared["postgres"]
    assert ONLY["sqlite"] == set(names("sqlite")) - set(names("postgres"))
    assert ONLY["postgres"] == set(names("postgres")) - set(names("sqlite"))


def test_each_sql_file_is_loaded_and_beside_the_script_that_runs_it():
    found = {path for path in PACKAGE.rglob("*.sql") if path.parent.name != "migrations"}
    assert found == {PACKAGE / f"{name}.{engine}.sql" for name in FILES for engine in ENGINES}
    for name in FILES:
        assert (PACKAGE / f"{name}.py").exists()


def test_every_statement_has_a_purpose_line():
    for engine in ENGINES:
        assert re.findall(r"^-- name: (\w+)\n(?!-- \S)", text(engine), re.MULTILINE) == []


@pytest.mark.parametrize("name", sorted({*names("sqlite"), *names("postgres")}))
def test_every_statement_is_run_by_a_script(name: str):
    assert re.search(rf'\bRun\(\s*"{name}"', PYTHON)


def test_every_statement_that_is_run_exists():
    assert set(re.findall(r'\bRun\(\s*"(\w+)"', PYTHON)) == {*names("sqlite"), *names("postgres")}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_option_is_requested_by_a_script(engine: str):
    options = set(re.findall(r"--\? (\w+)$", text(engine), re.MULTILINE))
    assert {"listed", "running", "entity"} <= options
    assert [word for word in sorted(options) if f'"{word}"' not in PYTHON] == []


def test_no_parameter_of_postgres_has_a_type_that_callers_have_codecs_for():
    """They come as text: asyncpg would ask the caller's codec for json, uuid and times."""
    wanted = r"(?<!:):[a-z_]+::(?!text\b|bigint\b|int\b|integer\b|boolean\b|double precision\b)\w+"
    assert re.findall(wanted, text("postgres")) == []
    assert re.findall(r"(?<![:\w]):[a-z_]+\b(?!::)", _without_strings(text("postgres"))) == []


def _without_strings(sql: str) -> str:
    return re.sub(r"--.*$|'[^']*'", "", sql, flags=re.MULTILINE)
