"""Clients that open connections and send no complete request: others are served all the time."""

import json
import os
import resource
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

PATIENCE = 60.0
OTHER = "127.0.0.1"  #: the address of a client that behaves
HEAD = b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
BODY = (
    b"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b'Content-Length: 100\r\n\r\n{"token": '
)
PARTS = (b"", HEAD, BODY)
UPGRADE = (
    b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
FOREIGN = UPGRADE + b"Origin: https://elsewhere.example\r\n\r\n"
MALFORMED = (  # it is answered before its body is read
    b"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nno length\r\n"
)
STREAM = b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n"


@dataclass
class Limited:
    """The server's process."""

    process: "subprocess.Popen[str]"
    port: int
    log: Path
    url: str
    context: ssl.SSLContext | None

    def connect(self, source: str) -> socket.socket:
        return socket.create_connection(
            ("127.0.0.1", self.port), timeout=PATIENCE, source_address=(source, 0)
        )

    def hold(self, stack: ExitStack, source: str, sent: Sequence[bytes]) -> list[socket.socket]:
        """Connections that send no more than this."""
        held = []
        for text in sent:
            connection = stack.enter_context(self.connect(source))
            with suppress(OSError):  # it may be closed already
                connection.sendall(text)
            held.append(connection)
        return held

    def ask(self) -> float:
        """Seconds that a client of another address waits for its answer."""
        begin = time.monotonic()
        address = f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}/ready"
        answer = httpx.get(address, timeout=PATIENCE, verify=self.context or True)
        assert answer.json() == {"ok": True}
        return time.monotonic() - begin

    @property
    def files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    @property
    def seconds(self) -> float:
        """Of processor time, so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    @property
    def text(self) -> str:
        return self.log.read_text()


@contextmanager
def limited(folder: Path, *, tls: bool = False, **given: Any) -> Iterator[Limited]:
    url, log = f"sqlite:///{folder}/jobs.db", folder / "log"
    context = certified(folder / "cert.pem") if tls else None
    given |= {"cert": str(folder / "cert.pem")} if tls else {}
    words = [sys.executable, "-m", "tests.web.limited", url, json.dumps(given)]
    with (
        log.open("w") as errors,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        try:
            yield Limited(process, int(line), log, url, context)
        finally:
            process.terminate()
            code = process.wait(PATIENCE)
        assert code == 0, log.read_text()


def certified(file: Path) -> ssl.SSLContext:
    """Write a certificate and its key; what a client needs to trust it."""
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """This process holds the clients' ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1000, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def answer_of(connection: socket.socket) -> bytes:
    """All that comes before it is closed."""
    connection.settimeout(PATIENCE)
    found = b""
    try:
        while text := connection.recv(1000):
            found += text
    except ConnectionError:
        pass
    return found


@pytest.mark.parametrize("addresses", [1, 11])
def test_half_open_requests_do_not_keep_others_out(tmp_path: Path, addresses: int):
    """1,100 of three kinds, from one address (the limit of an address) or from several (the limit of
    all of them together), on a server that may open 1,024 files."""
    limits = {"head": 12.0, "body": 12.0}
    sources = [f"127.0.0.{number + 2}" for number in range(addresses)]
    each = 1100 // addresses
    with limited(tmp_path, limits=limits, files=1024) as server, ExitStack() as stack:
        server.ask()
        before = server.files
        waits = []
        held: list[socket.socket] = []
        for number in range(0, each, 50):
            for source in sources:
                sent = [PARTS[(number + n) % 3] for n in range(min(50, each - number))]
                held += server.hold(stack, source, sent)
            waits.append(server.ask())
        assert len(held) == 1100
        while not all(map(is_closed, held)):  # all that time
            waits.append(server.ask())
            assert len(waits) < 1000
            time.sleep(0.1)
        assert len(waits) > 20
        assert max(waits) < 5.0
        assert sorted(waits)[len(waits) // 2] < 1.0
        assert len(server.text) < 20_000, server.text[:2000]
        assert "Traceback" not in server.text
        assert "without a complete request, to accept another" in server.text
        until(lambda: server.files <= before + 5, "descriptors are free again")
        assert server.ask() < 5.0


def test_slow_clients_are_closed_in_time(tmp_path: Path):
    """A head or a body that comes in drops; the rest of a body that was answered already."""
    limits = {"head": 2.0, "body": 2.0, "pace": 1000}
    with limited(tmp_path, limits=limits) as server, ExitStack() as stack:
        refused = b"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        refused += b"Content-Length: 100000\r\n\r\n"
        begin = time.monotonic()
        slow = server.hold(stack, OTHER, [HEAD, BODY, refused])
        [empty] = server.hold(stack, OTHER, [b""])
        closed: dict[socket.socket, float] = {}
        while len(closed) < 4 and time.monotonic() < begin + PATIENCE:
            for connection in {*slow, empty} - set(closed):
                try:
                    if connection is not empty:
                        connection.send(b"x")
                    connection.setblocking(False)
                    if connection.recv(1000) == b"":
                        closed[connection] = time.monotonic() - begin
                except BlockingIOError:
                    continue
                except OSError:
                    closed[connection] = time.monotonic() - begin
            time.sleep(0.1)
        assert len(closed) == 4
        assert min(closed.values()) > 1.5
        assert server.text.count("\n") < 5


def test_a_body_that_keeps_its_pace_is_waited_for(tmp_path: Path):
    """For much longer than one that stands still."""
    limits = {"head": 1.0, "body": 1.5, "pace": 50}
    with limited(tmp_path, limits=limits) as server, server.connect(OTHER) as client:
        body = json.dumps({"token": "x" * 1000}).encode()
        head = b"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        client.sendall(head)
        begin = time.monotonic()
        for start in range(0, len(body), 50):
            client.sendall(body[start : start + 50])
            time.sleep(0.25)
        assert time.monotonic() - begin > 4.0
        assert b" 422 " in answer_of(client)  # the whole body was read: no token is that long


def test_a_handshake_that_does_not_end_is_closed(tmp_path: Path):
    limits = {"head": 2.0, "per_address": 50}
    with limited(tmp_path, limits=limits, tls=True) as server, ExitStack() as stack:
        server.ask()
        before = server.files
        held = server.hold(stack, "127.0.0.2", [b"", b"\x16\x03\x01"] * 50)
        begin = time.monotonic()
        server.ask()
        until(lambda: all(map(is_closed, held)), "handshakes are closed")
        assert time.monotonic() - begin < 30  # asyncio itself would wait for a minute
        until(lambda: server.files <= before + 2, "descriptors are free again")
        assert len(server.text) < 5000
        assert "Traceback" not in server.text


@pytest.mark.parametrize("sent", [FOREIGN, MALFORMED], ids=["refused-upgrade", "malformed-body"])
def test_a_client_that_does_not_end_tls_does_not_end_the_server(tmp_path: Path, sent: bytes):
    """The server ends TLS; the client neither confirms that nor closes the connection."""
    with (
        limited(tmp_path, limits={"write": 2.0}, tls=True) as server,
        server.connect("127.0.0.2") as raw,
    ):
        assert server.context is not None
        server.ask()
        before = server.files
        client = server.context.wrap_socket(raw, server_hostname="127.0.0.1")
        with client, socket.socket(fileno=os.dup(client.fileno())) as below:
            client.sendall(sent)
            assert b"HTTP/1.1 40" in answer_of(client)
            begin = time.monotonic()
            below.settimeout(PATIENCE)
            assert below.recv(1000) == b""  # closed by the server
            assert time.monotonic() - begin < 25  # asyncio itself would wait for 30 s
            server.ask()
            until(lambda: server.files <= before, "its descriptor is free again")
        assert "AttributeError" not in server.text


def test_a_client_that_does_not_read_is_closed(tmp_path: Path):
    """Its requests are answered until nothing more can be sent."""
    with limited(tmp_path, limits={"write": 2.0}) as server, server.connect(OTHER) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        request = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        deadline = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < deadline:
                try:
                    client.send(request * 100)
                except BlockingIOError:
                    time.sleep(0.05)
        except OSError:
            pass
        assert time.monotonic() < deadline
        assert server.ask() < 5.0


def test_a_websocket_that_does_not_read_is_closed(tmp_path: Path):
    """Its pings are answered until nothing more can be sent."""
    upgrade = UPGRADE + b"Authorization: Bearer %s\r\n\r\n"
    ping = b"\x89\xfd\0\0\0\0" + b"x" * 125
    with limited(tmp_path, limits={"write": 2.0}) as server, ExitStack() as stack:
        [client] = server.hold(stack, OTHER, [upgrade % tokens(server.url)])
        assert client.recv(1000).startswith(b"HTTP/1.1 101 ")
        client.settimeout(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        with suppress(ConnectionError):
            for number in range(1_000_000):
                assert time.monotonic() < deadline
                client.sendall(ping * 100 if number < 1000 else ping)
                time.sleep(0.0 if number < 1000 else 0.05)
        assert server.ask() < 5.0


def tokens(url: str) -> bytes:
    from holdfast import Holdfast
    from holdfast.access import Access

    with Holdfast(url) as app:
        return Access(app).create("root", "admin")[1].encode()


def test_two_hundred_streams_of_one_address_work_by_default(tmp_path: Path):
    with limited(tmp_path) as server, ExitStack() as stack:
        streams = server.hold(stack, OTHER, [STREAM % tokens(server.url)] * 200)
        for stream in streams:
            assert stream.recv(1000).startswith(b"HTTP/1.1 200")
        server.hold(stack, OTHER, [b""] * 300)  # idle connections make room for one another
        for _ in range(20):
            assert server.ask() < 5.0
        for stream in streams:
            stream.setblocking(False)
            with suppress(BlockingIOError):
                assert stream.recv(100_000) != b""


def test_who_is_refused_is_told_so_and_counted_in_the_log(tmp_path: Path):
    with limited(tmp_path, limits={"per_address": 5, "total": 8}) as server, ExitStack() as stack:
        stream = STREAM % tokens(server.url)
        streams = server.hold(stack, "127.0.0.2", [stream] * 5)
        for one in streams:
            assert one.recv(1000).startswith(b"HTTP/1.1 200")
        for _ in range(300):
            with server.connect("127.0.0.2") as refused:
                told = answer_of(refused)
                assert told.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
                assert b"Retry-After: 10" in told
        assert server.ask() < 5.0
        for one in server.hold(stack, "127.0.0.3", [stream] * 3):
            assert one.recv(1000).startswith(b"HTTP/1.1 200")
        with server.connect("127.0.0.4") as refused:
            assert answer_of(refused).startswith(b"HTTP/1.1 503")
        until(lambda: "times more in the last" in server.text, "repeats are counted")
        lines = [line for line in server.text.splitlines() if "from 127.0.0.2" in line]
        assert len(lines) == 2
        assert "5 are open from this address" in lines[0]
        assert "(299 times more in the last" in lines[1]
        assert "refused a connection: 8 are open" in server.text


def test_a_trusted_proxy_has_no_limit_of_its_own(tmp_path: Path):
    limits = {"per_address": 2}
    with limited(tmp_path, limits=limits, proxies=["127.0.0.2"]) as server, ExitStack() as stack:
        stream = STREAM % tokens(server.url)
        for one in server.hold(stack, "127.0.0.2", [stream] * 10):
            assert one.recv(1000).startswith(b"HTTP/1.1 200")


def test_without_descriptors_connections_are_refused_quietly(tmp_path: Path):
    """The limit of open files is reached all the same, by something else in the process."""
    with limited(tmp_path, files=200, wasted=130) as server, ExitStack() as stack:
        held: list[socket.socket] = []
        until(lambda: server.ask() < PATIENCE, "it serves")
        begin = server.seconds
        for _ in range(10):
            held += server.hold(stack, "127.0.0.2", [HEAD] * 30)
            time.sleep(0.1)
        until(lambda: sum(map(is_closed, held)) > 100, "those beyond the limit are closed")
        time.sleep(2.0)
        assert server.seconds - begin < 2.0  # it does not spin
        assert "Too many open files" in server.text
        assert "Traceback" not in server.text
        assert len(server.text) < 5000
        for one in held:
            one.close()
        until(lambda: server.ask() < PATIENCE, "it serves again")
