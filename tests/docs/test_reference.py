"""The reference has every public name, option, command and route, with a description, and the schema of
the database."""

import inspect
import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
import holdfast.testing
import holdfast.web
from holdfast import Holdfast
from holdfast.jobs.job import TRANSITIONS, EventKind, Status
from holdfast.settings import Settings
from holdfast.tasks.options import Options
from holdfast.tasks.registration import option_names
from holdfast.web import dashboard
from tests.conftest import Database
from tests.docs.pages import DOCS
from tools.reference import api, command, configuration, schema
from tools.reference.source import source_of

MODULES = (holdfast, holdfast.testing, holdfast.web)
NAMES = [(module, name) for module in MODULES for name in module.__all__]
OPTIONS = option_names(Holdfast.task)


@pytest.fixture(scope="session")
def text(staged: Path) -> str:
    return "\n".join(page.read_text() for page in sorted((staged / "docs/reference").glob("*.md")))


def rows(page: Path, first: str) -> list[list[str]]:
    """Return the rows of the tables of a page whose first cell is this name."""
    lines = [line for line in page.read_text().splitlines() if line.startswith(f"| `{first}`")]
    return [re.sub(r"`[^`]*`", _without_bars, line).strip("| \n").split("|") for line in lines]


def _without_bars(code: re.Match[str]) -> str:
    return code[0].replace("|", "or")


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[f"{m.__name__}.{n}" for m, n in NAMES])
def test_every_public_name_is_in_the_reference(module: Any, name: str, staged: Path) -> None:
    index = (staged / "docs/reference/api.md").read_text()
    found = re.search(rf"^\| \[`{name}`\]\(([^)#]+)(#\S+)?\) \| (.+) \|$", index, re.MULTILINE)
    assert found is not None, f"{name} is not on the page"
    assert (staged / "docs/reference" / found[1]).exists()


@pytest.mark.parametrize(
    "thing",
    [
        thing
        for module, name in NAMES
        if inspect.isclass(thing := getattr(module, name)) or inspect.isfunction(thing)
    ],
    ids=lambda thing: thing.__name__,
)
def test_every_public_name_has_a_docstring(thing: Any) -> None:
    """The docstring is its own, not an inherited one."""
    words = source_of(inspect.unwrap(thing)).words
    assert len(words.split()) >= 3, f"{thing.__name__} has no docstring that says what it is"


def test_every_shown_method_has_a_docstring() -> None:
    wrong = []
    for entry in (*api.APPLICATION, *api.TASKS):
        found = {one.name: one for one in api.all_methods(entry.thing)}
        twins = {api.twin_of(name, found) for name in found}
        for name, method in found.items():
            hidden = name in api.INNER.get(entry.name, ()) or name in twins
            if not hidden and not method.words:
                wrong.append(f"{entry.name}.{name}")
    assert wrong == []


def options_of_the_application() -> list[str]:
    return list(inspect.signature(Holdfast).parameters)


@pytest.mark.parametrize(
    ("page", "name"),
    [
        *(("application.md", name) for name in options_of_the_application()),
        *(("tasks.md", name) for name in sorted({"name", *OPTIONS})),
        *(("tasks.md", name) for name in Options.__dataclass_fields__ if name != "aging"),
    ],
)
def test_every_option_has_a_description(page: str, name: str, staged: Path) -> None:
    found = rows(staged / "docs/reference" / page, name)
    assert found, f"{name} is not on {page}"
    assert all(len(row) < 4 or row[3].strip() for row in found), f"{name}: say what it means, by #:"


@pytest.mark.parametrize(
    "name",
    sorted({*options_of_the_application(), *OPTIONS, *Options.__dataclass_fields__} - {"url"}),
)
def test_every_option_is_explained_on_a_written_page(name: str) -> None:
    written = "\n".join(
        page.read_text() for page in DOCS.rglob("*.md") if "decisions" not in page.parts
    )
    assert re.search(rf"\b{name}\s*=|`{name}`", written), f"no guide uses {name}="


def test_every_command_and_option_is_in_the_reference(staged: Path) -> None:
    page = (staged / "docs/reference/cli.md").read_text()
    for name, one in command.commands().items():
        assert f"`{name}`" in page
        for option in command.options(one):
            assert option.help, f"{name} {option.name}: has no help"
            assert f"`{option.opts[0]}`" in page or option.param_type_name == "argument"


def test_every_route_is_in_the_reference(staged: Path) -> None:
    page = (staged / "docs/reference/rest.md").read_text()
    routes: list[Any] = dashboard(Holdfast("sqlite:///none.db")).routes
    known = {
        f"{method} {route.path.removeprefix('/api/v1').replace(':path', '')}"
        for route in routes
        if getattr(route, "include_in_schema", False)
        for method in getattr(route, "methods", None) or ["WebSocket"]
        if method != "HEAD"
    }
    assert {one for one in known if f"### `{one}`" not in page} == set()
    assert len(known) > 40


def test_every_event_status_and_transition_is_in_the_reference(staged: Path) -> None:
    pages = staged / "docs/reference"
    for kind in EventKind:
        assert rows(pages / "events.md", kind.value)[0][2].count("`") > 8
    for status in Status:
        assert rows(pages / "states.md", status.value)[0][1].strip()
    for verb in TRANSITIONS:
        assert rows(pages / "states.md", verb)


def test_every_setting_is_in_the_reference(staged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variable on the page changes a setting."""
    page = (staged / "docs/reference/configuration.md").read_text()
    for name in configuration.variables():
        assert f"`{name}`" in page
    samples = {"URL": None, "WORKDIR": "/tmp/x", "ARCHIVE": "/tmp/x", "HEALTH_WINDOW": "2h"}
    before = Settings()
    for name in configuration.variables():
        short = name.removeprefix("HOLDFAST_")
        sample = samples.get(short, "0.5" if short.startswith(("HEALTH", "BACKOFF_J")) else "7")
        sample = "7" if short.endswith("WORKERS") else sample
        if sample is not None:
            with monkeypatch.context() as patch:
                patch.setenv(name, sample)
                after = Settings()
            changed = [key for key in vars(before) if _differ(before, after, key)]
            assert changed, f"{name} changes nothing"


def _differ(before: Any, after: Any, key: str) -> bool:
    one, other = getattr(before, key), getattr(after, key)
    if key == "backoff":
        one, other = one.__self__, other.__self__
    return bool(one != other)


def test_the_documented_schema_is_that_of_the_database(database: Database) -> None:
    database.app().migrate()
    kind = "sqlite" if database.kind == "sqlite" else "postgres"
    told = {name: set(table.columns) for name, table in schema.read(kind).items()}
    assert told == (_of_sqlite(database) if kind == "sqlite" else _of_postgres(database))


def _of_sqlite(database: Database) -> dict[str, set[str]]:
    connection = sqlite3.connect(database.path)
    try:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        names = [name for (name,) in found if name.startswith("holdfast_")]
        return {
            name.removeprefix("holdfast_"): {
                row[1] for row in connection.execute(f"PRAGMA table_info({name})")
            }
            for name in names
            if name != "holdfast_migrations"
        }
    finally:
        connection.close()


def _of_postgres(database: Database) -> dict[str, set[str]]:
    query = (
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s "
        "AND table_name <> 'migrations'"
    )
    found: dict[str, set[str]] = {}
    with psycopg.connect(database.url) as connection:
        for table, column in connection.execute(query, (database.schema,)):
            found.setdefault(table, set()).add(column)
    return found


def test_every_column_has_a_description() -> None:
    words = schema.words()
    wrong = [
        f"{name}.{column}"
        for engine in ("sqlite", "postgres")
        for name, table in schema.read(engine).items()
        for column in table.columns
        if not words.get((name, column))
    ]
    assert wrong == []
