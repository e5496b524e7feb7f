"""`holdfast web` and `holdfast dev`, started before their database accepts connections."""

import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import psycopg
import pytest

from holdfast.cli import web_process
from holdfast.cli.database_wait import is_temporary
from holdfast.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    HoldfastError,
    InvalidInput,
    SchemaError,
    StorageError,
)
from tests.cli.command import Command
from tests.cli.test_web import finished, free_port, running, write_shop
from tests.conftest import Database
from tests.support.server import PostgresServer

WEB = ("web", "shopfront:app", "--port", "0")
URL = "postgresql://shop:secret@127.0.0.1/shop"


@pytest.fixture(scope="module")
def few() -> Iterator[PostgresServer]:
    """A server of twenty connections, which may be stopped."""
    with PostgresServer(max_connections=20) as server:
        if not server.can_restart:
            pytest.skip("an external PostgreSQL is not ours to stop")
        yield server


@pytest.fixture
def shop(few: PostgresServer, tmp_path: Path) -> Path:
    few.resume()
    database = Database("postgres", few.url(), "holdfast", [])
    with closing(database.engine()) as engine:
        engine.migrate()
    return write_shop(database, tmp_path)


def test_the_web_waits_for_a_free_connection(shop: Path, few: PostgresServer):
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(psycopg.connect(few.url()))
        with running(shop, *WEB) as web:
            web.wait_for("waiting for the database: .*too many clients.*; trying again every 2 s")
            assert "dashboard:" not in web.text
            stack.close()
            web.wait_for("the database answers")
            assert httpx.get(f"{web.address}ready", timeout=30).json() == {"ok": True}
            assert web.stop()[0] == 0
            assert web.text.count("waiting for the database") == 1


def test_the_web_waits_for_a_server_that_starts_later(shop: Path, few: PostgresServer):
    few.halt("fast")
    with running(shop, *WEB) as web:
        web.wait_for("waiting for the database: .*refused")
        few.resume()
        assert httpx.get(f"{web.address}ready", timeout=30).json() == {"ok": True}
        assert web.stop()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_web_that_waits_ends_when_it_is_told(shop: Path, few: PostgresServer, number: int):
    few.halt("fast")
    with running(shop, *WEB) as web:
        web.wait_for("waiting for the database")
        assert web.stop(number)[0] == 0
        assert "Traceback" not in web.text


def test_dev_waits_too(shop: Path, few: PostgresServer):
    few.halt("fast")
    port = str(free_port())
    with running(shop, "dev", "shopfront:app", "--port", port, "--no-open") as dev:
        dev.wait_for("waiting for the database")
        few.resume()
        dev.wait_for("worker .* started")
        dev.wait_for("dashboard: ")
        deadline = time.monotonic() + 60
        while "completed send" not in dev.text:  # it follows events from some moment on
            assert time.monotonic() < deadline, dev.text
            assert finished(shop, "enqueue", "shopfront:app", "send", "to=ann")[0] == 0
        assert httpx.get(f"http://127.0.0.1:{port}/ready", timeout=30).json() == {"ok": True}
        assert dev.stop()[0] == 0


def test_workers_do_not_wait_for_the_web(shop: Path, few: PostgresServer):
    few.halt("fast")
    with running(shop, "worker", "shopfront:app", "--web", "0", "--grace", "1s") as worker:
        worker.wait_for("holdfast.web: waiting for the database")
        worker.wait_for("the worker waits for the database")
        few.resume()
        worker.wait_for("worker .* started")
        assert httpx.get(f"{worker.address}ready", timeout=30).json() == {"ok": True}
        assert worker.stop()[0] == 0


def test_workers_do_not_wait_for_a_web_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The server of its database accepts a connection, and says nothing."""
    monkeypatch.setattr(web_process, "_PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://shop@127.0.0.1:{silent.getsockname()[1]}/shop"
        write_shop(Database("postgres", url, "holdfast", []), tmp_path)
        monkeypatch.chdir(tmp_path)
        web = web_process.WebProcess(
            "shopfront:app", ("127.0.0.1", 0), {"level": "info", "format": "text"}
        )
        web.start()
        try:
            assert caplog.messages == [
                "the web server is not ready yet; the workers start without it"
            ]
        finally:
            web.stop()


def test_the_web_ends_with_its_supervisor_although_that_has_read_nothing(
    monkeypatch: pytest.MonkeyPatch,
):
    ended = threading.Event()
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.set())
    ours, theirs = socket.socketpair()
    tied = web_process.Lifeline(theirs.detach())
    tied.release()
    ours.close()
    assert ended.wait(30)


def test_dev_that_waits_ends_when_it_is_told(shop: Path, few: PostgresServer):
    few.halt("fast")
    with running(shop, "dev", "shopfront:app", "--port", str(free_port()), "--no-open") as dev:
        dev.wait_for("waiting for the database")
        assert dev.stop(signal.SIGINT)[0] == 0


def test_what_cannot_pass_is_not_waited_for(shop: Path, few: PostgresServer):
    text = (shop / "shopfront.py").read_text()
    for url, reason in (
        (few.url("nothing"), 'database "nothing" does not exist'),
        (few.url().replace("postgres@", "nobody@"), 'role "nobody" does not exist'),
    ):
        (shop / "shopfront.py").write_text(text.replace(few.url(), url))
        code, error = finished(shop, *WEB)
        assert (code, reason in error) == (3, True), error


def test_a_wrong_password_is_not_waited_for(shop: Path, few: PostgresServer):
    with psycopg.connect(few.url(), autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS guarded")
        admin.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        rules = admin.execute("SHOW hba_file").fetchone()
        assert rules is not None
        file = Path(rules[0])
        kept = file.read_text()
        try:
            file.write_text(f"host all guarded all scram-sha-256\n{kept}")
            admin.execute("SELECT pg_reload_conf()")
            until_asked(few.url().replace("postgres@", "guarded:wrong@"))
            code, error = finished(
                *(shop, "web", "--port", "0"),
                *("--url", few.url().replace("postgres@", "guarded:wrong@")),
            )
        finally:
            file.write_text(kept)
            admin.execute("SELECT pg_reload_conf()")
    assert (code, "password authentication failed" in error) == (3, True), error


def until_asked(url: str) -> None:
    """The server asks for the password now."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            return
    raise AssertionError("the server does not read its rules again")


def test_the_web_waits_for_a_busy_sqlite_file(local: Command, tmp_path: Path):
    """Tables are to be made, and another connection holds the write lock."""
    url = f"sqlite:///{tmp_path}/busy.db?busy_timeout=0.5"
    shop = write_shop(Database("sqlite", url, "holdfast", []), tmp_path)
    with closing(sqlite3.connect(tmp_path / "busy.db", isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("BEGIN IMMEDIATE")
        with running(shop, *WEB) as web:
            web.wait_for("waiting for the database: .*write lock")
            other.execute("ROLLBACK")
            assert httpx.get(f"{web.address}ready", timeout=30).json() == {"ok": True}
            assert web.stop()[0] == 0


def test_a_server_that_loses_its_database_answers_503(shop: Path, few: PostgresServer):
    with psycopg.connect(few.url(), autocommit=True) as admin:
        admin.execute("DELETE FROM holdfast.tokens")
    with running(shop, *WEB) as web:
        token = web.wait_for(r"first token.*: (hf_\S+)")[1]
        known = {"Authorization": f"Bearer {token}"}

        def get(path: str) -> httpx.Response:
            return httpx.get(f"{web.address}{path}", headers=known, timeout=60)

        assert get("api/v1/jobs").status_code == 200
        few.halt("fast")
        lost = get("api/v1/jobs")
        assert (lost.status_code, lost.headers["content-type"]) == (503, "application/problem+json")
        assert lost.headers["retry-after"] == "2"
        assert lost.json()["status"] == 503
        assert get("ready").status_code == get("health").status_code == 503
        few.resume()
        deadline = time.monotonic() + 60
        while get("api/v1/jobs").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert get("health").json()["ok"]
        assert web.stop()[0] == 0


@pytest.mark.parametrize(
    ("problem", "url", "passes"),
    [
        (DatabaseUnavailable("x: Connection refused"), URL, True),
        (DatabaseUnavailable("x: FATAL:  the database system is starting up"), URL, True),
        (DatabaseUnavailable('x: FATAL:  too many connections for role "a"'), URL, True),
        (DatabaseUnavailable("x: failed to resolve host 'db'"), URL, True),
        (DatabaseBusy("locked"), "sqlite:///jobs.db", True),
        (DatabaseUnavailable("SQLite cannot open"), "sqlite:///jobs.db", False),
        (StorageError("full"), URL, False),
        (SchemaError("no tables"), URL, False),
        (DatabaseError("odd"), URL, False),
        (InvalidInput("odd"), URL, False),
        (DatabaseUnavailable("x: FATAL:  no pg_hba.conf entry for host"), URL, False),
        (DatabaseUnavailable('x: FATAL:  role "a b" does not exist'), URL, False),
    ],
)
def test_what_may_pass(problem: HoldfastError, url: str, passes: bool):
    assert is_temporary(problem, url) is passes
