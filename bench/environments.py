"""Peers are installed in virtual environments below bench/.peers, so they are no dependencies."""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from bench.processes import ROOT

FOLDER = ROOT / "bench" / ".peers"
REQUIREMENTS = {
    "Huey": ["huey==3.5.4"],
    "PgQueuer": ["pgqueuer[asyncpg]==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"],
    "Procrastinate": ["procrastinate==3.10.0", "psycopg[binary]==3.3.8"],
}


class Missing(Exception):
    """A peer that cannot be installed here."""


def interpreter(peer: str) -> str:
    """Return the Python of this peer's environment, installed on first use; raises Missing."""
    found = _installed(peer)
    if isinstance(found, str):
        raise Missing(found)
    return str(found)


@cache
def _installed(peer: str) -> Path | str:
    """Return the interpreter, or the reason why there is none; cached, so that an install is tried
    once."""
    requirements = REQUIREMENTS[peer]
    home = FOLDER / requirements[0].replace("[", "-").replace("]", "")
    python = home / "bin" / "python"
    stamp = home / "installed"
    wanted = "\n".join(requirements)
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(home, ignore_errors=True)
    quietly = ["--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "15"]
    for command in (
        [sys.executable, "-m", "venv", str(home)],
        [str(python), "-m", "pip", "install", *quietly, *requirements],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(home, ignore_errors=True)
            return (done.stderr.strip() or "no reason given").splitlines()[-1]
    stamp.write_text(wanted)
    return python
