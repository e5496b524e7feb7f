"""A real pgbouncer in front of a PostgreSQL server."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.support.machine import free_port, unprivileged_account
from tools.programs import need

SETTINGS = """
[databases]
* = user=postgres host={host} port={port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
auth_file = {users}
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
{more}
"""


class Pgbouncer:
    """In front of the server of a URL; use it in a `with`, and `url`."""

    def __init__(
        self, url: str, *, mode: str = "transaction", size: int = 2, more: str = ""
    ) -> None:
        parts = urlsplit(url)
        port = free_port()
        self.url = parts._replace(netloc=f"postgres@127.0.0.1:{port}").geturl()
        # Not in the folder of a test, which the account that it runs as may be unable to enter.
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-", dir="/tmp"))
        users = self._folder / "users.txt"
        users.write_text('"postgres" ""\n')
        self._settings = self._folder / "pgbouncer.ini"
        self._settings.write_text(
            SETTINGS.format(
                host=parts.hostname,
                port=parts.port,
                listen=port,
                users=users,
                mode=mode,
                size=size,
                more=more,
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Pgbouncer":
        account = unprivileged_account()  # it refuses to run as root
        if account is not None:
            for path in [self._folder, *self._folder.iterdir()]:
                os.chown(path, account.pw_uid, account.pw_gid)
        self._process = subprocess.Popen(
            [need("pgbouncer"), str(self._settings)],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return self
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    self.__exit__()
                    raise
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        shutil.rmtree(self._folder)
