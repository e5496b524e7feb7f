"""URLs of PostgreSQL: whatever libpq takes works everywhere, several hosts too."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast import Holdfast, InvalidURL, Status
from holdfast.engine.postgres.url import check_url, describe, with_defaults
from holdfast.settings import Settings, place_of
from holdfast.web.api.system import without_password
from tests.cli.command import process
from tests.support.machine import free_port
from tests.support.server import PostgresServer
from tests.support.standby import StandbyServer, several_hosts
from tests.support.web import Site

READ_WRITE = {"target_session_attrs": "read-write"}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGTARGETSESSIONATTRS"):
        monkeypatch.delenv(name, raising=False)


# what a URL says


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://db.example/shop", "db.example:None/shop#holdfast"),
        ("postgresql://ann:x@DB.example:5433/shop", "db.example:5433/shop#holdfast"),
        ("postgres://[::1]:5432/shop?sslmode=require", "::1:5432/shop#holdfast"),
        ("postgresql:///shop?host=/run/postgresql", "None:None/shop#holdfast"),
        ("postgresql://%2Frun%2Fpostgresql/shop", "%2Frun%2Fpostgresql:None/shop#holdfast"),
    ],
)
def test_the_identity_of_one_host_is_unchanged(url: str, place: str) -> None:
    """Folders of jobs that run are named after it: another name would lose them with an upgrade."""
    assert place_of(url, "holdfast") == place


def test_the_folder_of_a_database_identity_is_unchanged(tmp_path: Path) -> None:
    database = place_of("postgresql://ann@db.example:5433/shop", "holdfast")
    settings = Settings(workdir=tmp_path, database=database)
    assert settings.workdir == tmp_path / "7659bd4c33bd"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://ann:a,b@H1:5432,h2:5433/shop", "h1:5432,h2:5433/shop#s"),
        (
            "postgresql://h1,[::1]:5433,[fe80::1]/shop?sslmode=require",
            "h1,[::1]:5433,[fe80::1]/shop#s",
        ),
        ("postgresql:///shop?host=h1,h2&port=5432,5433", "h1,h2:5432,5433/shop#s"),
        ("postgres://h1,h2", "h1,h2#s"),
    ],
)
def test_the_identity_of_several_hosts(url: str, place: str) -> None:
    assert place_of(url, "s") == place


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://ann:s3@h1:1,h2:2,h3:3/shop", "PostgreSQL (h1 and 2 more, database shop)"),
        ("postgresql://[::1]:1,h2/shop", "PostgreSQL (::1 and 1 more, database shop)"),
        ("postgresql://h1/shop", "PostgreSQL (h1, database shop)"),
        ("postgresql:///shop?host=/run/pg", "PostgreSQL (/run/pg, database shop)"),
        ("postgresql:///?host=h1,h2", "PostgreSQL (h1 and 1 more, database (default))"),
        (
            "postgresql:///shop?hostaddr=10.0.0.1,10.0.0.2",
            "PostgreSQL (10.0.0.1 and 1 more, database shop)",
        ),
        ("postgresql://", "PostgreSQL (the local server, database (default))"),
    ],
)
def test_several_hosts_are_described_by_the_first(url: str, told: str) -> None:
    assert describe(url) == told


@pytest.mark.parametrize(
    ("url", "defaults"),
    [
        ("postgresql://h1:1/shop", {}),
        ("postgresql:///shop?host=/run/pg", {}),
        ("postgresql://h1:1,h2:2/shop", READ_WRITE),
        ("postgresql:///shop?host=h1,h2", READ_WRITE),
        ("postgresql:///shop?hostaddr=10.0.0.1,10.0.0.2", READ_WRITE),
        ("postgresql://h1,h2/shop?target_session_attrs=any", {}),
        ("postgresql://h1,h2/shop?target_session_attrs=primary", {}),
    ],
)
def test_the_writable_one_of_several_hosts_is_used(url: str, defaults: dict[str, str]) -> None:
    assert with_defaults(url) == defaults


def test_the_environment_may_name_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "h1,h2")
    assert with_defaults("postgresql:///shop") == READ_WRITE
    assert with_defaults("postgresql://h3/shop") == {}
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "any")
    assert with_defaults("postgresql:///shop") == {}


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://h1:many/shop", "'many'"),
        ("postgresql://h1:1,h2:70000/shop", "'70000'"),
        ("postgresql://h1,h2,h3/shop?port=1,2", "3 hosts and 2 ports"),
        ("postgresql://h1:5432,[::1/shop", "cannot be understood"),
    ],
)
def test_a_url_without_a_target_is_refused(url: str, told: str) -> None:
    with pytest.raises(InvalidURL, match=told):
        Holdfast(url)


@pytest.mark.parametrize(
    ("url", "environment"),
    [
        ("postgresql:///shop?hostaddr=1.1.1.1,2.2.2.2&port=1,2", {}),
        ("postgresql:///shop?host=h1,h2&hostaddr=1.1.1.1,2.2.2.2&port=1,2", {}),
        ("postgresql:///shop?port=1,2", {"PGHOST": "h1,h2"}),
        ("postgresql:///shop?port=1,2", {"PGHOSTADDR": "1.1.1.1,2.2.2.2"}),
        ("postgresql:///shop?service=shop&port=1,2", {}),
        ("postgresql:///shop?port=1,2", {"PGSERVICE": "shop"}),
    ],
)
def test_hosts_may_be_given_as_parameters(
    url: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    check_url(url)


def test_hosts_of_the_environment_apply_only_if_the_url_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGHOST", "h1,h2,h3")
    check_url("postgresql:///shop?host=h4,h5&port=1,2")
    with pytest.raises(InvalidURL, match="3 hosts and 2 ports"):
        check_url("postgresql:///shop?port=1,2")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3@h1:1,[::1]:2/shop?sslmode=require", "postgresql://h1:1,[::1]:2/shop"),
        ("postgresql://ann:?#s3@h1/shop", "postgresql://h1/shop"),
        ("postgresql:///shop?host=h1,h2&password=s3", "postgresql:///shop"),
        ("postgresql://h1,h2", "postgresql://h1,h2"),
    ],
)
def test_the_shown_url_has_no_secrets(url: str, shown: str) -> None:
    check_url(url)
    assert without_password(url) == shown


# the first host is not there


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    """One of its own: it is reached by its socket, and has a standby."""
    with PostgresServer(own=True) as server:
        yield server


def urls(server: PostgresServer) -> dict[str, str]:
    port, dead, name = server._port, free_port(), server.url().rpartition("/")[2]
    sockets = quote(str(server._home), safe="")
    return {
        "hosts": f"postgresql://postgres@127.0.0.1:{dead},127.0.0.1:{port}/{name}",
        "addresses": f"postgresql:///{name}?user=postgres&hostaddr=127.0.0.1,127.0.0.1&port={dead},{port}",
        "query": f"postgresql:///{name}?user=postgres&host=127.0.0.1,localhost&port={dead},{port}",
        "ipv6": f"postgresql://postgres@[::1]:{dead},127.0.0.1:{port}/{name}",
        "socket": f"postgresql:///{name}?host={sockets}&port={port}&user=postgres",
        "both": f"postgresql://postgres@127.0.0.1:{dead},{sockets}:{port}/{name}",
    }


@pytest.mark.parametrize("form", ["hosts", "addresses", "query", "ipv6", "socket", "both"])
def test_everything_works_with_several_hosts(
    primary: PostgresServer, form: str, tmp_path: Path
) -> None:
    url = urls(primary)[form]
    with Holdfast(url, auto_migrate=True) as app:

        @app.task
        def send(n: int) -> int:
            return n

        job = send.enqueue(7)
        with app.worker() as worker:
            assert worker.join(timeout=60)
        assert app.jobs.get(job.id).result == 7
        assert app.stats().jobs[Status.COMPLETED] >= 1
        site = Site(app)
        try:
            told = site.somebody("admin").get("/system").json()
        finally:
            site.close()
        assert "postgres@" not in told["database"]
    for words in (["doctor"], ["jobs", "list"], ["stats"], ["health"], ["jobs", "show", job.id]):
        done = process(*words, "--url", url, cwd=tmp_path)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


def test_no_reachable_host_is_an_error(tmp_path: Path) -> None:
    url = f"postgresql://postgres@127.0.0.1:{free_port()},127.0.0.1:{free_port()}/shop"
    done = process("jobs", "list", "--url", url, cwd=tmp_path)
    assert done.returncode != 0
    assert "PostgreSQL (127.0.0.1 and 1 more, database shop)" in done.stderr
    assert "Traceback" not in done.stderr
    told = process("doctor", "--url", url, cwd=tmp_path)
    assert "PostgreSQL (127.0.0.1 and 1 more, database shop)" in told.stdout
    assert "Traceback" not in told.stderr


def test_a_standby_as_the_first_host_is_skipped(primary: PostgresServer) -> None:
    with StandbyServer(primary) as standby:
        url = several_hosts(standby.url(), primary.url())
        with Holdfast(url, auto_migrate=True) as app:
            assert app.enqueue("send", {}).created
        with Holdfast(f"{url}?target_session_attrs=any") as app:
            standby.catch_up()
            assert "role" in {finding.subject for finding in app.engine.doctor.diagnose()}
