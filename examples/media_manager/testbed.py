"""The testbed of the media manager: a real server and a fake provider, over HTTP."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
from websockets.sync.client import connect

from examples.harness import Harness, free_port
from examples.media_manager import store
from examples.media_manager.fakes import FakeProvider, Gate
from holdfast import Holdfast, Job

KEY = "a-key-for-the-checks"
FINISHED = ("completed", "failed", "cancelled")
OFF = {"scanning": {"chainToEnrich": False}, "enrichment": {"chainToPublish": False}}
CHAINED = {"publishing": {"chainToSync": True}}
#: Like the defaults, but faster.
QUICK = {"retryDelay": 200, "pollInterval": 500}


class MediaTestbed:
    def __init__(
        self, harness: Harness, provider: FakeProvider, url: str, concurrency: int
    ) -> None:
        self.harness = harness
        self.provider = provider
        self.url = url
        self.observer = Holdfast(
            url, auto_migrate=True
        )  #: without the application's code, for reading
        self.db = store.Store(url, 30)
        self.cache = harness.folder / "cache"
        self.films = 0  #: the library of the chain
        self._port = free_port()
        self._file = harness.folder / "settings.json"
        self._settings: dict[str, Any] = {
            "database": url,
            "databaseTimeout": 1,
            "cache": str(self.cache),
            "provider": provider.url,
            "providerTimeout": 1.0,
            "players": {"1": f"{provider.url}/player"},
            "apiKey": KEY,
            "orphanAge": 0,
        }
        self.set(worker=QUICK | {"concurrency": concurrency}, phases=OFF)

    def set(self, **changes: Any) -> None:
        """Replace the settings file atomically, since a process may be reading it."""
        self._settings |= changes
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self._settings))
        part.replace(self._file)

    def start(self) -> None:
        """Start the server with its worker; short heartbeats reveal a killed worker soon."""
        port = str(self._port)
        words = ("uvicorn", "examples.media_manager.server:server", "--port", port)
        self.process = self.harness.start(
            *("examples.unprivileged", *words, "--no-access-log", "--log-level", "warning"),
            MEDIA_SETTINGS=str(self._file),
            HOLDFAST_HEARTBEAT="1",
        )
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"X-Api-Key": KEY}, timeout=10
        )
        self.harness.until("the server answers", self._answers)

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}")
        try:
            return self.client.get("/ready").is_success
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        self.harness.kill(self.process)
        self.client.close()

    def stop(self) -> int:
        self.client.close()
        return self.harness.stop(self.process)

    def close(self) -> None:
        self.client.close()
        self.db.close()
        self.observer.close()

    # asking

    def get(self, path: str) -> Any:
        return self.client.get(path).json()

    def post(self, path: str, body: Any = None, status: int = 200) -> dict[str, Any]:
        answer = self.client.post(path, json={} if body is None else body)
        if answer.status_code != status:
            raise AssertionError(f"POST {path}: {answer.status_code} {answer.text}")
        return dict(answer.json())

    def create(self, type: str, payload: dict[str, Any], priority: int | None = None) -> Any:
        body = {"type": type, "payload": payload}
        return self.post("/api/v1/jobs", body | ({"priority": priority} if priority else {}), 201)

    def about(self, title: str) -> dict[str, Any]:
        """The payload of a job about a title."""
        with self.db.begin() as tx:
            [one] = [row for row in store.list_media(tx) if row["title"] == title]
        return {"entity_type": one["kind"], "entity_id": one["id"]}

    def enrich(self, title: str, priority: int | None = None, manual: bool = False) -> str:
        job = self.create("enrich-metadata", {**self.about(title), "manual": manual}, priority)
        return str(job["id"])

    def messages(self, follow: str, gate: Gate | None = None) -> list[dict[str, Any]]:
        """Return all messages of a link's WebSocket until it is closed. Opens the gate when the job is
        halfway."""
        received = []
        with connect(
            str(self.client.base_url).replace("http", "ws").rstrip("/") + follow
        ) as socket:
            for text in socket:
                received.append(json.loads(text))
                if gate is not None and received[-1]["data"].get("progress") == 50:
                    gate.open()
        return received

    def jobs(self, *types: str, after: Job | None = None, **filter: Any) -> list[Job]:
        """Return jobs that are not recurring, optionally only those made after another job."""
        found = [job for job in self.observer.jobs.search(**filter) if job.schedule is None]
        found = [job for job in found if after is None or job.id > after.id]
        return [job for job in found if not types or job.type in types]

    def log(self, job: Job) -> list[str]:
        """Return the lines of a job's log, which are written within a second."""
        lines = self.harness.until("a line of its log", lambda: self.observer.jobs.logs(job.id))
        return [line.text for line in lines]

    # waiting

    def until(self, id: str, *statuses: str) -> Job:
        """Wait until a job has one of these statuses, by default a final one; returns the job."""
        wanted = statuses or FINISHED

        def reached() -> Job | None:
            job = self.observer.jobs.get(id)
            return job if job.status in wanted else None

        return self.harness.until(f"job {id} is {' or '.join(wanted)}", reached, 20)

    def until_idle(self) -> None:
        """Wait until all jobs have ended, with those that followed."""

        def idle() -> bool:
            return all(job.status in FINISHED for job in self.jobs())

        self.harness.until("nothing is left to do", idle)

    @contextmanager
    def without_database(self) -> Iterator[None]:
        """Cut the application off its database: end its connections, or hold SQLite's lock."""
        if self.url.startswith("postgresql"):
            self.db.close()
            with psycopg.connect(self.url, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'media-manager' AND datname = current_database()"
                )
            yield
            return
        lock = sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            lock.execute("ROLLBACK")
            lock.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the queue until the end of the block."""
        self.post("/api/v1/queues/default/pause")
        try:
            yield
        finally:
            self.post("/api/v1/queues/default/resume")

    def library(self, name: str, *titles: str) -> Path:
        """Make a folder of films; a name without a year is a series."""
        folder = self.harness.folder / name
        folder.mkdir()
        for title in titles:
            place = folder / title
            place.with_name(f"{title}.mkv").touch() if title.endswith(")") else place.mkdir()
        return folder


@contextmanager
def open_testbed(harness: Harness, url: str, concurrency: int = 1) -> Iterator[MediaTestbed]:
    with FakeProvider() as provider:
        testbed = MediaTestbed(harness, provider, url, concurrency)
        testbed.start()
        try:
            yield testbed
        finally:
            testbed.kill()
            testbed.close()
