"""The testbed of the application: its server, a client that uploads, and a view of its database."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from examples.harness import ROOT, Harness, free_port
from examples.videos import sample_media
from holdfast import Holdfast

ENDED = ("completed", "failed", "cancelled")


class VideoTestbed:
    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.home = harness.folder / "home"
        self.scratch = self.home / "scratch"
        self.blobs = self.home / "blobs"
        self.environment = {
            "VIDEOS_HOME": str(self.home),
            "HOLDFAST_HEARTBEAT": "1",  # a killed server is declared dead after 3 s instead of 15
            "HOLDFAST_BACKOFF_DELAY": "0.1",  # and a failed run is retried soon
            "HOLDFAST_POLL_INTERVAL": "300",  # workers must be woken, since polling is too slow
        }
        self.jobs = Holdfast(f"sqlite:///{self.home / 'videos.db'}")  # reads only
        self._port = free_port()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=60)
        self.clip = sample_media.film(harness.folder / "wide.mov", "2560x90", 1)
        self.film = sample_media.film(harness.folder / "film.mov", "1280x720", 2, rate=30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.close()
        self.jobs.close()
        for pid in self.ffmpegs():  # those frozen by a check that failed
            os.kill(pid, signal.SIGKILL)

    # the server

    def open(self) -> None:
        words = ["examples.videos.server:server", "--port", str(self._port), "--no-access-log"]
        self.server = self.harness.start("uvicorn", *words, **self.environment)
        self.harness.until("the server answers", self._answers)

    def _answers(self) -> bool:
        with suppress(httpx.TransportError):
            return self.client.get("/admin/ready").is_success
        return False

    def kill(self) -> None:
        """kill -9."""
        self.harness.kill(self.server)

    def stop(self) -> None:
        self.harness.stop(self.server)

    def command(self, *words: str) -> str:
        """Run `python -m WORDS` with the application's settings; returns its output."""
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    # media

    def upload(self, file: Path, content_type: str = "video/quicktime") -> dict[str, Any]:
        answer = self.client.post(
            "/media",
            params={"name": file.name},
            content=file.read_bytes(),
            headers={"Content-Type": content_type},
        )
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def see(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/media/{id}").raise_for_status().json()
        return found

    def finished(self, id: str, seen: list[float] | None = None) -> dict[str, Any]:
        """Wait until the job has ended; returns the media. Progress is appended to `seen`."""

        def ended() -> dict[str, Any] | None:
            media = self.see(id)
            if seen is not None and media["job"]["progress"] is not None:
                seen.append(media["job"]["progress"])
            return media if media["job"]["status"] in ENDED else None

        return self.harness.until(f"the job of media {id} has ended", ended, pause=0.1)

    def log_of(self, job: str, lines: int) -> list[str]:
        """Wait for that many lines in a job's log, which a worker writes every second."""

        def written() -> list[str] | None:
            found = [line.text for line in self.jobs.jobs.logs(job)]
            return found if len(found) >= lines else None

        return self.harness.until(f"job {job} has a log", written)

    # ffmpeg

    def ffmpegs(self) -> dict[int, str]:
        """Return the processes that transcode films of this testbed, with their command lines."""
        listing = subprocess.run(
            ["ps", "-axww", "-o", "pid=,stat=,command="], check=True, capture_output=True
        )
        found = {}
        for line in listing.stdout.decode(errors="replace").splitlines():
            pid, state, command = line.split(maxsplit=2)
            if str(self.scratch) in command and "libx264" in command and state[0] != "Z":
                found[int(pid)] = command
        return found

    def freeze(self, job: str) -> tuple[int, str] | None:
        """Stop the ffmpeg of a job (SIGSTOP) as soon as it runs. None: the job ended before."""

        def snapshot() -> list[tuple[int, str]] | None:
            found = [one for one in self.ffmpegs().items() if job in one[1]]
            return found or ([(0, "")] if self.jobs.jobs.get(job).status in ENDED else None)

        [(pid, command)] = self.harness.until(f"ffmpeg of job {job} runs", snapshot, pause=0.05)
        if not pid:
            return None
        os.kill(pid, signal.SIGSTOP)
        return pid, command

    def is_gone(self, pid: int) -> bool:
        self.harness.until(f"ffmpeg {pid} is gone", lambda: pid not in self.ffmpegs(), pause=0.05)
        return True

    def workdirs(self) -> Collection[Path]:
        return set(self.scratch.glob("*/*"))  # below a folder for each database

    # the operator

    def token(self, role: str) -> dict[str, str]:
        """Return the request headers of a new token with this role."""
        words = ["--app", "examples.videos.app:app", "--name", role, "--role", role, "--json"]
        made = json.loads(self.command("holdfast", "tokens", "create", *words))
        return {"Authorization": f"Bearer {made['token']}"}
