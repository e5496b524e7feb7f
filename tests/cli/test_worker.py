"""`holdfast worker`: what the supervisor is told; and the logs of its processes."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.core.log_format import configure
from tests.cli.command import Command


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the supervisor would have been asked to do."""
    from holdfast.worker.processes import supervisor

    found: list[Any] = []

    def supervise(location: str, app: Holdfast, **options: Any) -> int:
        found.append((location, app, options))
        return 7

    monkeypatch.setattr(supervisor, "supervise", supervise)
    return found


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "workshop", raising=False)
    text = f"from holdfast import Holdfast\napp = Holdfast('sqlite:///{tmp_path}/jobs.db')\n"
    (tmp_path / "workshop.py").write_text(text)
    return "workshop:app"


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]


def test_what_the_supervisor_is_told(local: Command, shop: str, calls: list[Any]):
    assert local("worker", shop).code == 7
    options = ["-q", "default=10,media=2", "--processes", "3", "--concurrency", "4"]
    options += ["--grace", "5m", "--log-level", "debug", "--log-format", "json"]
    assert local("worker", shop, *options).code == 7
    [(location, app, plain), (_, _, told)] = calls
    assert (location, isinstance(app, Holdfast)) == (shop, True)
    assert plain == {
        "queues": None,
        "concurrency": None,
        "processes": 1,
        "grace": 30.0,
        "log": {"level": "info", "format": "text"},
    }
    assert told == {
        "queues": "default=10,media=2",
        "concurrency": 4,
        "processes": 3,
        "grace": 300.0,
        "log": {"level": "debug", "format": "json"},
    }


@pytest.mark.parametrize(
    ("words", "told"), [([], True), (["-q", "default,mail"], False), (["-q", "*"], False)]
)
def test_queues_of_its_tasks_that_it_does_not_serve_are_told(
    local: Command, shop: str, calls: list[Any], words: list[str], told: bool
):
    Path("workshop.py").write_text(
        Path("workshop.py").read_text() + "@app.task(queue='mail')\ndef send(): ...\n"
    )
    done = local("worker", shop, *words)
    assert ("does not serve: mail; serve them here with --queues '*'" in done.err) is told


def test_everything_from_the_environment(local: Command, shop: str, calls: list[Any]):
    local(
        "worker",
        HOLDFAST_APP=shop,
        HOLDFAST_WORKER_QUEUES="media",
        HOLDFAST_WORKER_PROCESSES="2",
        HOLDFAST_WORKER_CONCURRENCY="5",
        HOLDFAST_WORKER_GRACE="10",
        HOLDFAST_LOG_LEVEL="warning",
        HOLDFAST_LOG_FORMAT="json",
    )
    [(location, _, told)] = calls
    assert location == shop
    assert (told["queues"], told["processes"], told["concurrency"]) == ("media", 2, 5)
    assert (told["grace"], told["log"]) == (10.0, {"level": "warning", "format": "json"})


@pytest.mark.parametrize(
    "words",
    [
        ["nowhere:app"],
        ["workshop:app", "-q", "media=many"],
        ["workshop:app", "--processes", "0"],
        ["workshop:app", "--grace", "soon"],
        ["workshop:app", "--log-level", "loud"],
        ["workshop:app", "--log-format", "xml"],
        [],
    ],
)
def test_wrong_calls(local: Command, shop: str, calls: list[Any], words: list[str]):
    assert local("worker", *words).code == 2
    assert calls == []


def logged(format: str, monkeypatch: pytest.MonkeyPatch) -> str:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure("info", format)
    logger = logging.getLogger("holdfast.job")
    logger.debug("too quiet")
    logger.info("fetched %d", 7, extra={"job_id": "j1", "task": "fetch", "attempt": 2})
    try:
        raise ValueError("bad")
    except ValueError:
        logger.exception("é failed\nbadly")
    return stream.getvalue()


def test_text(monkeypatch: pytest.MonkeyPatch):
    first, second, *trace = logged("text", monkeypatch).splitlines()
    assert first.endswith("INFO holdfast.job: fetched 7 [job_id=j1 task=fetch attempt=2]")
    assert first[:2] == "20"
    assert first.split()[0].endswith("Z")
    assert second.endswith("ERROR holdfast.job: é failed")
    assert trace[-1] == "ValueError: bad"


def test_json(monkeypatch: pytest.MonkeyPatch):
    first, second = map(json.loads, logged("json", monkeypatch).splitlines())
    assert list(first) == ["time", "level", "logger", "message", "job_id", "task", "attempt"]
    assert (first["message"], first["job_id"], first["task"], first["attempt"]) == (
        *("fetched 7", "j1", "fetch", 2),
    )
    assert (second["level"], second["message"]) == ("error", "é failed\nbadly")
    assert second["error"] == "ValueError: bad"
    assert second["trace"].startswith("Traceback")


def test_configuring_again_replaces(monkeypatch: pytest.MonkeyPatch):
    logged("text", monkeypatch)
    assert len(logged("json", monkeypatch).splitlines()) == 2
    for level, format in [("loud", "text"), ("info", "xml")]:
        with pytest.raises(InvalidInput, match="choose one of"):
            configure(level, format)
