"""The web server of `holdfast worker --web`: a process of its own, which ends with the supervisor."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain, repeat

import typer

from holdfast.errors import InvalidInput

logger = logging.getLogger("holdfast.web")

_PATIENCE = 10.0  # seconds for it to serve, or to report that it waits for the database
_LEAVE = 6.0  # seconds for it to end by itself
_PAUSES = (0.2, 1.0, 5.0, 15.0)  # seconds before it is started again, and again


def parse_address(text: str) -> tuple[str, int]:
    """Read [HOST:]PORT."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InvalidInput(f"--web {text!r}: write PORT or HOST:PORT, such as 8686")
    return host.strip("[]") or "127.0.0.1", int(port)


def end(process: "subprocess.Popen[bytes]", patience: float) -> None:
    """End a process: with SIGTERM and, if it has not ended after so many seconds, by force."""
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class WebProcess:
    """The web server's process: started before the workers, so that a wrong address ends them all, and
    started again when it dies. Workers do not wait for its database."""

    def __init__(self, location: str, address: tuple[str, int], log: Mapping[str, str]) -> None:
        host, port = address
        self._command = [sys.executable, "-m", "holdfast", "web", location]
        self._command += ["--host", host, "--port", str(port)]
        self._command += ["--log-level", log["level"], "--log-format", log["format"]]
        self._environment = dict(os.environ)
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="holdfast-web-process", daemon=True)

    def start(self) -> None:
        self._begin()
        if not self._answers():  # it has ended, and printed why
            raise typer.Exit(self._process.wait() or 1)
        self._environment["HOLDFAST_WEB_OPEN"] = "0"  # once is enough
        self._keeper.start()

    def _begin(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                [*self._command, "--lifeline", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=self._environment,
                process_group=0,  # a Ctrl-C at the terminal is for the supervisor alone
            )

    def _answers(self) -> bool:
        self._socket.settimeout(_PATIENCE)
        try:
            return bool(self._socket.recv(1))
        except TimeoutError:  # as when a connection to its database is neither made nor refused
            logger.warning("the web server is not ready yet; the workers start without it")
            return True

    def _keep(self) -> None:
        """Start the server again whenever it ends; workers do not depend on it."""
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            code = self._process.wait()
            if self._stopping.is_set():
                return
            logger.error("the web server ended with code %d, and is started again", code)
            if self._stopping.wait(pause):
                return
            self._socket.close()
            self._begin()

    def stop(self) -> None:
        self._stopping.set()
        end(self._process, _LEAVE)
        self._keeper.join(1.0)
        self._socket.close()


class Lifeline:
    """In the web server's process: the socket to its supervisor. The process ends with the supervisor,
    which waits for `release`."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._released = False
        threading.Thread(target=self._watch, name="holdfast-lifeline", daemon=True).start()

    def release(self) -> None:
        """Let the supervisor go on: the web is served, or waits for its database."""
        if not self._released:
            self._released = True
            with suppress(OSError):
                self._socket.sendall(b"!")

    def _watch(self) -> None:
        with self._socket, suppress(OSError):  # it is reset if the supervisor has not read all
            self._socket.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)
