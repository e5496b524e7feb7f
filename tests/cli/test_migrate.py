"""`holdfast migrate`, as people run it: a process of its own."""

import json
from pathlib import Path

from tests.cli.command import process as holdfast
from tests.conftest import Database


def test_by_url(bare_database: Database, tmp_path: Path) -> None:
    first = holdfast(
        "migrate", "--url", bare_database.url, "--schema", bare_database.schema, cwd=tmp_path
    )
    assert (first.returncode, first.stdout) == (
        0,
        "applied 0001_initial\napplied 0002_idempotency_and_deaths\n",
    )
    again = holdfast(
        "migrate",
        cwd=tmp_path,
        HOLDFAST_URL=bare_database.url,
        HOLDFAST_SCHEMA=bare_database.schema,
    )
    assert (again.returncode, again.stdout.split(":")[0]) == (0, "nothing to do")


def test_by_application(bare_database: Database, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from holdfast import Holdfast\n"
        f"app = Holdfast({bare_database.url!r}, schema={bare_database.schema!r})\n"
    )
    done = holdfast("migrate", "shop:app", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (
        0,
        "applied 0001_initial\napplied 0002_idempotency_and_deaths\n",
    )


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


def test_json(bare_database: Database, tmp_path: Path) -> None:
    options = ["migrate", "--json", "--url", bare_database.url, "--schema", bare_database.schema]
    assert json.loads(holdfast(*options, cwd=tmp_path).stdout)["applied"]
    assert json.loads(holdfast(*options, cwd=tmp_path).stdout) == {"applied": []}
