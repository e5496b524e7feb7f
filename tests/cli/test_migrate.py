"""`holdfast migrate`, as people run it: a process of its own."""

import json
from pathlib import Path

from tests.cli.command import process as holdfast
from tests.conftest import Database


def test_by_url(database: Database, tmp_path: Path) -> None:
    first = holdfast("migrate", "--url", database.url, "--schema", database.schema, cwd=tmp_path)
    assert (first.returncode, first.stdout) == (0, "applied 0001_initial\n")
    again = holdfast(
        "migrate", cwd=tmp_path, HOLDFAST_URL=database.url, HOLDFAST_SCHEMA=database.schema
    )
    assert (again.returncode, again.stdout.split(":")[0]) == (0, "nothing to do")


def test_by_application(database: Database, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        f"from holdfast import Holdfast\napp = Holdfast({database.url!r}, schema={database.schema!r})\n"
    )
    done = holdfast("migrate", "shop:app", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "applied 0001_initial\n")


def test_sql_is_printed_and_nothing_applied(tmp_path: Path) -> None:
    done = holdfast("migrate", "--sql", "--url", "sqlite:///jobs.db", cwd=tmp_path)
    assert done.returncode == 0
    assert "CREATE TABLE holdfast_jobs" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_errors_are_one_line_with_a_stable_exit_code(tmp_path: Path) -> None:
    away = holdfast("migrate", "--url", "postgresql://127.0.0.1:1/x", cwd=tmp_path)
    assert away.returncode == 3
    assert away.stderr.startswith("holdfast: PostgreSQL (127.0.0.1")
    assert "Traceback" not in away.stderr
    wrong = holdfast("migrate", "nowhere:app", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "No module named 'nowhere'" in wrong.stderr
    bad = holdfast("migrate", "--url", "mysql://x", cwd=tmp_path)
    assert (bad.returncode, bad.stderr[:10]) == (2, "holdfast: ")


def test_json(database: Database, tmp_path: Path) -> None:
    options = ["migrate", "--json", "--url", database.url, "--schema", database.schema]
    assert json.loads(holdfast(*options, cwd=tmp_path).stdout)["applied"]
    assert json.loads(holdfast(*options, cwd=tmp_path).stdout) == {"applied": []}
