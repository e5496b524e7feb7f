"""Which application or database a command is about, and what its exit code says."""

import json
from pathlib import Path

import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.app_loader import load
from holdfast.cli.root import EXIT_CODES, exit_code
from holdfast.errors import DatabaseBusy, InvalidURL, SchemaError, UnknownTask
from tests.cli.command import Command, make_empty, process
from tests.conftest import Database

COMMANDS = [
    ["jobs", "list"],
    ["queues", "list"],
    ["limits", "list"],
    ["schedules", "list"],
    ["workers"],
    ["stats"],
    ["jobs", "show", "01890000-0000-7000-8000-000000000000"],
]


def module(folder: Path, name: str, url: str):
    (folder / f"{name}.py").write_text(
        f"from holdfast import Holdfast\napp = Holdfast({url!r})\nseven = 7\n"
    )


def pending(done: object) -> int:
    assert done.returncode == 0, done.stderr  # type: ignore[attr-defined]
    number: int = json.loads(done.stdout)["jobs"]["pending"]  # type: ignore[attr-defined]
    return number


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two databases, told apart by how many jobs are in them, and an application for each."""
    for name, jobs in (("one", 1), ("two", 2)):
        with Holdfast(f"sqlite:///{tmp_path}/{name}.db") as app:
            for _ in range(jobs):
                app.enqueue("send")
        module(tmp_path, name, f"sqlite:///{name}.db")
    return tmp_path


def test_what_is_written_wins(two: Path):
    stats = ["stats", "--json"]
    one, other = "sqlite:///one.db", "sqlite:///two.db"
    assert pending(process(*stats, "one:app", cwd=two)) == 1
    assert pending(process(*stats, "one", cwd=two)) == 1
    assert pending(process(*stats, "--app", "two", cwd=two)) == 2
    assert pending(process(*stats, cwd=two, HOLDFAST_APP="two:app")) == 2
    assert pending(process(*stats, "--url", one, cwd=two, HOLDFAST_URL=other)) == 1
    assert pending(process(*stats, "--url", one, cwd=two, HOLDFAST_APP="two")) == 1
    assert pending(process(*stats, "one", cwd=two, HOLDFAST_APP="two", HOLDFAST_URL=other)) == 1
    assert pending(process(*stats, cwd=two, HOLDFAST_APP="two", HOLDFAST_URL=one)) == 2


def test_two_answers_are_none(two: Path):
    for words in [["one", "--url", "sqlite:///two.db"], ["one", "--app", "two"]]:
        refused = process("stats", *words, cwd=two)
        assert refused.returncode == 2
        assert "give one" in refused.stderr


def test_the_default_file_if_it_is_there(tmp_path: Path):
    nothing = process("stats", cwd=tmp_path)
    assert nothing.returncode == 2
    assert "HOLDFAST_URL" in nothing.stderr
    with Holdfast(f"sqlite:///{tmp_path}/holdfast.db") as app:
        app.enqueue("send")
    assert pending(process("stats", "--json", cwd=tmp_path)) == 1


@pytest.mark.parametrize("words", COMMANDS)
def test_a_look_makes_nothing(local: Command, words: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(local.cwd)
    absent = local(*words, HOLDFAST_URL="sqlite:///none.db")
    assert absent.code == 3
    assert "none.db" in absent.err
    assert not (local.cwd / "none.db").exists()


@pytest.mark.parametrize("words", COMMANDS)
def test_tables_that_are_missing(bare_database: Database, tmp_path: Path, words: list[str]):
    make_empty(bare_database)
    assert Command(bare_database, tmp_path)(*words).code == 5


@pytest.mark.parametrize("words", [*COMMANDS, ["migrate"]])
def test_a_database_out_of_reach(local: Command, words: list[str]):
    away = local(*words, HOLDFAST_URL="postgresql://127.0.0.1:1/x")
    assert away.code == 3
    assert away.err.startswith("holdfast: PostgreSQL (127.0.0.1")
    assert len(away.err.splitlines()) == 1


def test_json_from_the_environment(command: Command):
    assert json.loads(command("queues", "list", HOLDFAST_JSON="1").out) == []


def test_every_option_has_a_variable(command: Command):
    assert command("jobs", "list", HOLDFAST_JOBS_LIST_STATUS="nonsense").code == 2
    assert command("jobs", "list", HOLDFAST_JOBS_LIST_LIMIT="many").code == 2
    assert command("--version", HOLDFAST_VERSION="9").code == 0


def test_help_and_version(local: Command):
    version = local("--version")
    assert version.out.startswith("holdfast 0.")
    for words in [[], ["jobs"], ["queues"], ["limits"], ["schedules"]]:
        assert "Usage: holdfast" in local(*words, "--help").out
    assert local("jbos").code == 2


def test_exit_codes():
    assert [exit_code(kind("x")) for kind in EXIT_CODES] == [4, 2, 3, 4, 4, 4, 5]
    assert exit_code(InvalidURL("x")) == 2
    assert exit_code(UnknownTask("x")) == 4
    assert exit_code(SchemaError("x")) == 5
    assert exit_code(DatabaseBusy("x")) == 1


# locations


def test_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module(tmp_path, "located", "sqlite:///jobs.db")
    app = load("located:app")
    assert load("located") is app
    for location, told in [
        ("located:other", "has no 'other'; it has located:app"),
        ("located:seven", "is a int, not a Holdfast application; it has located:app"),
        ("nowhere:app", "No module named 'nowhere'"),
        ("located.inner:app", "No module named 'located.inner'"),
        ("shop/jobs.py:app", "e.g. 'shop.jobs:app'"),
        ("", "is not MODULE:APP"),
    ]:
        with pytest.raises(InvalidInput, match="(?s).*" + told.replace("(", r"\(")):
            load(location)


def test_what_the_module_itself_cannot_import_is_its_own_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "needy.py").write_text("import a_package_that_is_not_there\n")
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        load("needy:app")
    done = process("stats", "needy:app", cwd=tmp_path)
    assert done.returncode == 1
    assert 'needy.py", line 1' in done.stderr
