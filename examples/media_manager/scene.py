"""The media manager as it is seen from outside: a real server, a fake provider, HTTP between them."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
from websockets.sync.client import connect

from examples.media_manager import store
from examples.media_manager.fakes import FakeProvider, Gate
from examples.stage import Stage, free_port
from holdfast import Holdfast, Job

KEY = "a-key-of-the-house"
FINISHED = ("completed", "failed", "cancelled")
OFF = {"scanning": {"chainToEnrich": False}, "enrichment": {"chainToPublish": False}}
CHAINED = {"publishing": {"chainToSync": True}}
#: As in production, but quicker.
QUICK = {"retryDelay": 200, "pollInterval": 500}


class Scene:
    def __init__(self, stage: Stage, provider: FakeProvider, url: str, concurrency: int) -> None:
        self.stage = stage
        self.provider = provider
        self.url = url
        self.look = Holdfast(url, auto_migrate=True)  #: without the code: it only looks
        self.db = store.Store(url, 30)
        self.cache = stage.folder / "cache"
        self.films = 0  #: the library of the chain
        self._port = free_port()
        self._file = stage.folder / "settings.json"
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
        """Another settings file. It is swapped in whole: a process may be reading it."""
        self._settings |= changes
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self._settings))
        part.replace(self._file)

    def start(self) -> None:
        """The server, with its worker; heartbeats are quick, so that a killed one is missed soon."""
        port = str(self._port)
        words = ("uvicorn", "examples.media_manager.server:server", "--port", port)
        self.process = self.stage.start(
            *("examples.mortal", *words, "--no-access-log", "--log-level", "warning"),
            MEDIA_SETTINGS=str(self._file),
            HOLDFAST_HEARTBEAT="1",
        )
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"X-Api-Key": KEY}, timeout=10
        )
        self.stage.until("the server answers", self._answers)

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}")
        try:
            return self.client.get("/ready").is_success
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        self.stage.kill(self.process)
        self.client.close()

    def stop(self) -> int:
        self.client.close()
        return self.stage.stop(self.process)

    def close(self) -> None:
        self.client.close()
        self.db.close()
        self.look.close()

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
        """All that the socket of a link is told, until it is closed. A gate is opened when the job is
        halfway."""
        told = []
        with connect(str(self.client.base_url).replace("http", "ws").rstrip("/") + follow) as heard:
            for text in heard:
                told.append(json.loads(text))
                if gate is not None and told[-1]["data"].get("progress") == 50:
                    gate.open()
        return told

    def jobs(self, *types: str, after: Job | None = None, **filter: Any) -> list[Job]:
        """Those that do not recur; made after another one."""
        found = [job for job in self.look.jobs.search(**filter) if job.schedule is None]
        found = [job for job in found if after is None or job.id > after.id]
        return [job for job in found if not types or job.type in types]

    def log(self, job: Job) -> list[str]:
        """What was logged; it is written within a second after."""
        lines = self.stage.until("a line of its log", lambda: self.look.jobs.logs(job.id))
        return [line.text for line in lines]

    # waiting

    def until(self, id: str, *statuses: str) -> Job:
        """A job, once it is in one of these statuses; without any: once it is over."""
        wanted = statuses or FINISHED

        def reached() -> Job | None:
            job = self.look.jobs.get(id)
            return job if job.status in wanted else None

        return self.stage.until(f"job {id} is {' or '.join(wanted)}", reached, 20)

    def until_idle(self) -> None:
        """All that was begun is over, with what followed from it."""

        def idle() -> bool:
            return all(job.status in FINISHED for job in self.jobs())

        self.stage.until("nothing is left to do", idle)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """The application loses its database: its connections are ended, or somebody holds the lock."""
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
        """Nothing begins until the end of the block."""
        self.post("/api/v1/queues/default/pause")
        try:
            yield
        finally:
            self.post("/api/v1/queues/default/resume")

    def library(self, name: str, *titles: str) -> Path:
        """A folder of films; a name without a year is a series."""
        folder = self.stage.folder / name
        folder.mkdir()
        for title in titles:
            place = folder / title
            place.with_name(f"{title}.mkv").touch() if title.endswith(")") else place.mkdir()
        return folder


@contextmanager
def on_scene(stage: Stage, url: str, concurrency: int = 1) -> Iterator[Scene]:
    with FakeProvider() as provider:
        scene = Scene(stage, provider, url, concurrency)
        scene.start()
        try:
            yield scene
        finally:
            scene.kill()
            scene.close()
