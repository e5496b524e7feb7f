"""`holdfast web`, `worker --web` and `dev`: real processes on real sockets."""

import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import trustme

from holdfast.access import Access
from tests.cli.command import Command, environment, forked, process
from tests.conftest import Database
from tests.support.forked import Forked

SHOP = """
from holdfast import Holdfast

app = Holdfast({url!r}, schema={schema!r})


@app.task(queue="mail")
def send(to: str) -> str:
    return f"sent to {{to}}"


def staff(request):
    return ("ann", "viewer") if request.headers.get("x-staff") == "yes" else None
"""


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Path:
    """An application, its tables made."""
    database.engine().open()
    return write_shop(database, tmp_path)


@pytest.fixture
def small(local: Command) -> Path:
    """The same on SQLite, where the engine makes no difference."""
    return write_shop(local.database, local.cwd)


def write_shop(database: Database, folder: Path) -> Path:
    text = SHOP.format(url=database.url, schema=database.schema)
    (folder / "shopfront.py").write_text(text)
    return folder


class Running:
    """A process whose lines are read as they come."""

    def __init__(self, process: Forked) -> None:
        self.process = process
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._over = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def wait_for(self, pattern: str, times: int = 1) -> "re.Match[str]":
        """The line that says so, for the given time."""
        deadline = time.monotonic() + 60
        with self._news:
            while True:
                found = [match for line in self.lines if (match := re.search(pattern, line))]
                if len(found) >= times:
                    return found[times - 1]
                left = deadline - time.monotonic()
                assert left > 0, f"never said {pattern}: {self.text}"
                assert not self._over, f"ended without {pattern}: {self.text}"
                self._news.wait(left)

    @property
    def text(self) -> str:
        return "".join(self.lines)

    @property
    def address(self) -> str:
        return self.wait_for(r"dashboard: (\S+)")[1]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Its exit code, and how long it took."""
        begin = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(30), time.monotonic() - begin


@contextmanager
def running(folder: Path, *words: str, **variables: str) -> Iterator[Running]:
    variables["PYTHONUNBUFFERED"] = "1"
    with forked(*words, cwd=folder, one=True, **variables) as process:
        try:
            yield Running(process)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def finished(folder: Path, *words: str, **variables: str) -> tuple[int, str]:
    done = process(*words, cwd=folder, **variables)
    return done.returncode, done.stderr


def listens_on(port: int) -> set[str]:
    """The addresses on which this machine listens on that port, as the kernel says."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        address, _, number = fields[1].partition(":")
        if fields[3] == "0A" and int(number, 16) == port:
            found.add(socket.inet_ntoa(bytes.fromhex(address)[::-1]))
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


# who may come in


def test_the_first_token_is_printed_once_and_only_once(shop: Path):
    with running(shop, "web", "shopfront:app", "--port", "0") as web:
        token = web.wait_for(r"first token.*: (hf_\S+)")[1]
        assert httpx.get(f"{web.address}api/v1/session").status_code == 401
        known = {"Authorization": f"Bearer {token}"}
        told = httpx.get(f"{web.address}api/v1/session", headers=known).json()
        assert told["role"] == "admin"
        code, seconds = web.stop()
        assert (code, seconds < 3) == (0, True), web.text
        assert web.text.count(token) == 1
    with running(shop, "web", "shopfront:app", "--port", "0") as again:
        again.wait_for("to log in: holdfast tokens create --app shopfront:app")
        assert httpx.get(f"{again.address}ready").json() == {"ok": True}
        assert again.stop(signal.SIGINT)[0] == 0
        assert "hf_" not in again.text


def test_two_that_start_together_make_one_token(shop: Path, database: Database):
    words = ("web", "shopfront:app", "--port", "0")
    with running(shop, *words) as one, running(shop, *words) as other:
        assert one.address != other.address
        one.wait_for("hf_|to log in")
        other.wait_for("hf_|to log in")
        assert (one.text + other.text).count("hf_") == 1
    assert len(Access(database.app()).list()) == 1


def test_by_default_it_listens_on_this_machine_alone(small: Path):
    """The default itself, on the port that nobody chose: nothing else may have it meanwhile."""
    port = free_port()
    with running(small, "web", "shopfront:app", HOLDFAST_WEB_PORT=str(port)) as web:
        assert web.address == f"http://127.0.0.1:{port}/"
        assert listens_on(port) == {"127.0.0.1"}
        called = httpx.get(web.address, headers={"Host": "evil.example"})
        assert called.status_code == 421
        assert httpx.get(f"http://localhost:{port}/").status_code == 200
        assert "server" not in called.headers


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_what_others_can_reach_is_refused_until_it_is_closed(small: Path, host: str):
    words = ("web", "shopfront:app", "--host", host, "--port", "0")
    code, error = finished(small, *words)
    assert code == 2
    assert "holdfast tokens create" in error
    assert "--allow-host" in error
    code, error = finished(small, *words, "--allow-host", "jobs.example.com")
    assert (code, "holdfast tokens create" in error, "--allow-host NAME" in error) == (
        2,
        True,
        False,
    )
    code, error = finished(small, *words, "--authorize", "shopfront:staff")
    assert (code, "holdfast tokens create" in error, "--allow-host NAME" in error) == (
        2,
        False,
        True,
    )


def test_what_others_can_reach_with_a_token_and_a_name(small: Path, local: Command):
    from holdfast import Holdfast

    with Holdfast(local.database.url) as app:
        token, secret = Access(app).create("ann", "viewer")
        words = ["web", "shopfront:app", "--host", "0.0.0.0", "--port", "0"]
        words += ["--allow-host", "jobs.example.com"]
        with running(small, *words) as web:
            web.wait_for("warning: other machines can reach it, without TLS")
            known = {"Authorization": f"Bearer {secret}", "Host": "jobs.example.com"}
            port = urlsplit(web.address).port
            assert web.address == f"http://jobs.example.com:{port}/"
            here = f"http://127.0.0.1:{port}/"
            told = httpx.get(f"{here}api/v1/session", headers=known)
            assert told.json()["who"] == "ann"
            assert httpx.get(here).status_code == 421  # by another name
        Access(app).revoke(token.id)
        code, error = finished(small, *words)
    assert (code, "nobody could log in" in error) == (2, True)


def test_the_applications_own_word(small: Path):
    words = (
        "web",
        "shopfront:app",
        "--port",
        "0",
        "--authorize",
        "shopfront:staff",
        "--title",
        "Us",
    )
    with running(small, *words) as web:
        url = f"{web.address}api/v1/session"
        assert httpx.get(url).status_code == 401
        told = httpx.get(url, headers={"X-Staff": "yes"}).json()
        assert (told["who"], told["role"], told["title"]) == ("ann", "viewer", "Us")
        assert "hf_" not in web.text  # whoever has a hook needs no token


def test_a_port_that_is_taken_costs_no_token(small: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, error = finished(small, "web", "shopfront:app", "--port", port)
    assert code == 1
    assert re.search(rf"cannot listen on 127.0.0.1:{port}: .*--port", error)
    with running(small, "web", "shopfront:app", "--port", "0") as web:
        web.wait_for("first token")


def test_with_a_certificate_it_speaks_tls_alone(small: Path, local: Command):
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(small / "us.pem")
    words = ["web", "shopfront:app", "--port", "0", "--tls-cert", "us.pem", "--tls-key", "us.pem"]
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with running(small, *words) as web, httpx.Client(verify=trust) as browser:
        assert web.address.startswith("https://127.0.0.1:")
        secret = web.wait_for(r"(hf_\S+)")[1]
        entered = browser.post(f"{web.address}api/v1/session", json={"token": secret})
        assert entered.status_code == 200
        assert entered.headers["strict-transport-security"]
        assert entered.headers["set-cookie"].startswith("__Host-holdfast=")
        assert "; Secure" in entered.headers["set-cookie"]
        with pytest.raises(httpx.TransportError):
            httpx.get(web.address.replace("https", "http"))


@pytest.mark.parametrize("believed", [True, False])
def test_only_a_proxy_that_is_named_is_believed(small: Path, local: Command, believed: bool):
    """What it says of the browser behind it: its address, and that it came by TLS."""
    named = "127.0.0.1" if believed else "192.0.2.1"
    words = ["web", "shopfront:app", "--port", "0", "--proxy-headers-from", named]
    says = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    with running(small, *words) as web, httpx.Client(headers=says) as proxy:
        api = f"{web.address}api/v1"
        secret = web.wait_for(r"(hf_\S+)")[1]
        entered = proxy.post(f"{api}/session", json={"token": secret})
        assert ("; Secure" in entered.headers["set-cookie"]) is believed
        known = {"Authorization": f"Bearer {secret}"}
        assert proxy.post(f"{api}/queues/mail/pause", json={}, headers=known).status_code == 200
        told = proxy.get(f"{api}/audit", headers=known).json()["entries"][0]
        assert told["address"] == ("203.0.113.9" if believed else "127.0.0.1")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--tls-cert", "none.pem"], "--tls-key"),
        (["--tls-cert", "none.pem", "--tls-key", "none.pem"], "none.pem"),
        (["--base", "jobs"], "base"),
        (["--origin", "example.com"], "origins"),
        (["--authorize", "shopfront:nobody"], "nobody"),
        (["--authorize", "shopfront:__name__"], "authorize"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["--host", ""], "--host"),
    ],
)
def test_wrong_calls(small: Path, words: list[str], named: str):
    code, error = finished(small, "web", "shopfront:app", "--port", "0", *words)
    assert (code, named in error, "Traceback" in error) == (2, True, False), error


def test_without_the_extra_it_says_what_to_install(small: Path):
    """As if uvicorn was not there: a module of that name that cannot be found."""
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv[1:] = ['web', 'shopfront:app'];"
        "from holdfast.cli.root import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=small,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "pip install 'holdfast[web]'" in done.stderr) == (1, True)


def test_a_database_by_its_url(local: Command):
    assert finished(local.cwd, "web", "--url", local.database.url)[0] == 3
    assert finished(local.cwd, "migrate", "--url", local.database.url)[0] == 0
    with running(local.cwd, "web", "--url", local.database.url, "--port", "0") as web:
        assert httpx.get(f"{web.address}ready").json() == {"ok": True}


def browser(folder: Path) -> str:
    """A browser that writes down where it was sent."""
    script = folder / "browser"
    script.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$1\" >> {folder}/visited\n")
    script.chmod(0o755)
    return str(script)


def test_the_browser_is_let_in_once(small: Path):
    words = ("web", "shopfront:app", "--port", "0", "--open")
    with running(small, *words, BROWSER=f"{browser(small)} %s") as web:
        address = web.address
        visited = small / "visited"
        deadline = time.monotonic() + 30
        while not visited.exists() or "\n" not in visited.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        page, _, secret = visited.read_text().strip().partition("#token=")
        assert page == address
        with httpx.Client() as client:
            url = f"{address}api/v1/session"
            assert client.post(url, json={"token": secret}).json()["role"] == "admin"
            assert client.get(url).json()["auth"] == "token"
            assert client.post(url, json={"token": secret}).status_code == 401
        assert secret not in web.text


def test_live_connections_do_not_keep_it(small: Path):
    """One that has asked for nothing yet, and one that was answered and stays."""
    with running(small, "web", "shopfront:app", "--port", "0") as web:
        host, port = web.address.removeprefix("http://").strip("/").split(":")
        with socket.create_connection((host, int(port))), httpx.Client() as client:
            client.get(f"{web.address}ready")
            code, seconds = web.stop()
    assert (code, seconds < 3) == (0, True)


def test_the_access_log_leaves_out_probes_and_queries(small: Path):
    with running(small, "web", "shopfront:app", "--port", "0", "--access-log") as web:
        httpx.get(f"{web.address}ready")
        httpx.get(f"{web.address}static/1/none.js?link=secret")
        web.wait_for(r"GET /static/1/none.js HTTP")
        web.stop()
    assert "/ready" not in web.text
    assert "secret" not in web.text


def test_the_limits_of_connections_can_be_set(small: Path):
    words = ("web", "shopfront:app", "--port", "0", "--max-connections-per-address", "1")
    with running(small, *words, HOLDFAST_WEB_MAX_CONNECTIONS="20") as web:
        host, port = web.address.removeprefix("http://").strip("/").split(":")
        with socket.create_connection((host, int(port))) as first:
            first.sendall(b"GET /ready HTTP/1.1\r\n")
            assert httpx.get(f"{web.address}ready", timeout=30).json() == {"ok": True}
            first.settimeout(30)
            with suppress(ConnectionError):
                assert first.recv(1) == b""
        web.wait_for("closed a connection from 127.0.0.1 without a complete request")
    assert finished(small, *words, HOLDFAST_WEB_MAX_CONNECTIONS="0")[0] == 2


# beside a worker


def test_a_worker_with_the_web_beside_it(shop: Path, database: Database):
    words = ("worker", "shopfront:app", "-q", "*", "--web", "0", "--grace", "1s")
    with running(shop, *words) as worker:
        address = worker.address
        worker.wait_for("worker .* started")
        app = database.app()
        job = app.enqueue("send", {"to": "ann"}, queue="mail")
        assert app.jobs.wait_for(job.id, timeout=30) == "sent to ann"
        assert httpx.get(f"{address}ready").json() == {"ok": True}
        code, _ = worker.stop()
        assert code == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}ready")


def test_a_wrong_address_ends_the_worker_before_it_begins(small: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, error = finished(small, "worker", "shopfront:app", "--web", port)
        assert (code, f"cannot listen on 127.0.0.1:{port}" in error) == (1, True)
    code, error = finished(small, "worker", "shopfront:app", "--web", "0.0.0.0:0")
    assert (code, "--allow-host" in error) == (2, True)
    assert finished(small, "worker", "shopfront:app", "--web", "soon")[0] == 2


def test_the_web_ends_when_its_supervisor_is_killed(small: Path):
    with running(small, "worker", "shopfront:app", "--web", "0") as worker:
        address = worker.address
        assert httpx.get(f"{address}ready").status_code == 200
        worker.process.kill()
        worker.process.wait(10)
        deadline = time.monotonic() + 20
        while True:
            try:
                httpx.get(f"{address}ready")
            except httpx.TransportError:
                return
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_dev_starts_again_when_a_file_changes(small: Path):
    port = str(free_port())
    with running(small, "dev", "shopfront:app", "--port", port, "--no-open") as dev:
        dev.wait_for("worker .* started")
        file = small / "shopfront.py"
        text = file.read_text()
        file.write_text(text.replace("sent to", "mailed to"))
        dev.wait_for("shopfront.py changed: starting again")
        dev.wait_for("worker .* started", times=2)
        assert finished(small, "enqueue", "shopfront:app", "send", "to=ann")[0] == 0
        dev.wait_for("completed send -> mailed to ann")
        file.write_text("this is broken")
        dev.wait_for("it ended with code 1; waiting for a change")
        file.write_text(text)
        dev.wait_for("worker .* started", times=3)
        assert httpx.get(f"http://127.0.0.1:{port}/ready").json() == {"ok": True}
        assert dev.stop()[0] == 0
    assert dev.text.count("hf_") == 1
