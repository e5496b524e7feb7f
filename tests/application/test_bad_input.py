"""Invalid input raises an error that names the thing, the rule and the remedy; nothing is written."""

import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    AppClosed,
    DatabaseUnavailable,
    Holdfast,
    HoldfastError,
    InvalidArguments,
    InvalidInput,
    InvalidURL,
    PayloadTooLarge,
    UnsafeFilesystem,
    UsedAfterFork,
)
from holdfast.engine.sqlite.filesystem import filesystem_of, refuse_network
from holdfast.tasks.task import Task
from tests.conftest import Database


@pytest.fixture
def send(app: Holdfast) -> Task:
    @app.task
    def send(to: str, n: int = 1, anything: Any = None) -> None: ...

    return send


class Opaque:
    """A type that has no JSON form."""


def app_of(task: Task) -> Holdfast:
    assert isinstance(task.host, Holdfast)
    return task.host


CALLS: dict[str, tuple[Callable[[Task], object], type[Exception], str]] = {
    "an argument is missing": (lambda t: t.enqueue(), InvalidArguments, "to: is missing"),
    "an argument is unknown": (lambda t: t.enqueue("a", z=1), InvalidArguments, "z"),
    "an argument of the wrong type": (lambda t: t.enqueue("a", n="x"), InvalidArguments, "n: "),
    "not JSON": (
        lambda t: t.enqueue("a", anything=Opaque()),
        InvalidArguments,
        "cannot be written as JSON",
    ),
    "NaN": (lambda t: t.enqueue("a", anything=[float("nan")]), InvalidArguments, "NaN"),
    "infinity": (lambda t: t.enqueue("a", anything=float("inf")), InvalidArguments, "Infinity"),
    "a lone surrogate": (lambda t: t.enqueue("\ud800"), InvalidArguments, "as JSON|surrogate"),
    "a recurring job by its task's name": (
        lambda t: app_of(t).enqueue(t.name, {"to": "a"}, every="1h"),
        InvalidInput,
        "are for schedule",
    ),
    "a job of a workflow by its task's name": (
        lambda t: app_of(t).enqueue(t.name, {"to": "a"}, node="first"),
        InvalidInput,
        "for jobs of a workflow",
    ),
    "two MiB": (lambda t: t.enqueue("a" * 2**21), PayloadTooLarge, "the limit is 1,048,576"),
    "a queue with quotes": (lambda t: t.using(queue="a'b").enqueue("a"), InvalidInput, "queue="),
    "a queue with NUL": (lambda t: t.using(queue="a\x00").enqueue("a"), InvalidInput, "queue="),
    "an empty queue": (lambda t: t.using(queue="").enqueue("a"), InvalidInput, "queue="),
    "a time without timezone": (
        lambda t: t.using(run_at=datetime(2030, 1, 1)).enqueue("a"),
        InvalidInput,
        "timezone",
    ),
    "a time that is none": (lambda t: t.using(run_at="soon").enqueue("a"), InvalidInput, "run_at="),
    "both delay and run_at": (
        lambda t: t.using(delay=1, run_at=datetime.now().astimezone()),
        InvalidInput,
        "both given",
    ),
    "a negative delay": (lambda t: t.using(delay=-1).enqueue("a"), InvalidInput, "delay=-1"),
    "a delay of nonsense": (
        lambda t: t.using(delay="1 fortnight").enqueue("a"),
        InvalidInput,
        "30m",
    ),
    "an endless delay": (lambda t: t.using(delay=1e30).enqueue("a"), InvalidInput, "100 years"),
    "a delay of NaN": (lambda t: t.using(delay=float("nan")).enqueue("a"), InvalidInput, "delay="),
    "an empty key": (lambda t: t.using(key="").enqueue("a"), InvalidInput, "1 to 500"),
    "a key that is no text": (lambda t: t.using(key=7).enqueue("a"), InvalidInput, "key="),
    "a key with NUL": (lambda t: t.using(key="a\x00b").enqueue("a"), InvalidInput, "NUL"),
    "a policy without key": (
        lambda t: t.using(on_conflict="replace").enqueue("a"),
        InvalidInput,
        "needs a key=",
    ),
    "an unknown policy": (
        lambda t: t.using(key="k", on_conflict="maybe"),
        InvalidInput,
        "existing, replace, raise, debounce",
    ),
    "an unknown option": (
        lambda t: t.using(prio=1),
        InvalidInput,
        "unknown option prio: there are",
    ),
    "no attempts": (lambda t: t.using(max_attempts=0).enqueue("a"), InvalidInput, "max_attempts=0"),
    "half an attempt": (lambda t: t.using(max_attempts=1.5).enqueue("a"), InvalidInput, "integer"),
    "a priority beyond": (
        lambda t: t.using(priority=2**63).enqueue("a"),
        InvalidInput,
        "priority=",
    ),
    "a priority of True": (
        lambda t: t.using(priority=True).enqueue("a"),
        InvalidInput,
        "priority=",
    ),
    "no time at all": (lambda t: t.using(timeout=0).enqueue("a"), InvalidInput, "timeout=0"),
    "half an entity": (
        lambda t: t.using(entity="movie").enqueue("a"),
        InvalidInput,
        "('movie', 7)",
    ),
    "an entity of lists": (
        lambda t: t.using(entity=("movie", [1])).enqueue("a"),
        InvalidInput,
        "entity=",
    ),
    "many of one key": (
        lambda t: t.using(key="k").enqueue_many([{}]),
        InvalidInput,
        "enqueue each",
    ),
    "many of nothing": (lambda t: t.enqueue_many(["a"]), InvalidInput, "element 0"),
    "a bad one among many": (
        lambda t: t.enqueue_many([{"to": "a"}, {"to": "b", "n": []}]),
        InvalidArguments,
        "n: ",
    ),
}


@pytest.mark.parametrize("case", list(CALLS), ids=list(CALLS))
def test_invalid_enqueues_are_refused(app: Holdfast, send: Task, case: str) -> None:
    call, kind, words = CALLS[case]
    with pytest.raises(kind, match=words if "|" in words else re.escape(words)):
        call(send)
    assert app.jobs.count() == 0


def test_a_payload_nested_without_end_is_refused(app: Holdfast, send: Task) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidArguments):
        send.enqueue("a", anything=deep)
    while deep:  # taken apart by hand: Python's own way down is recursive
        deep = deep.pop()
    assert app.jobs.count() == 0


VERBS: dict[str, tuple[Callable[[Holdfast], object], str]] = {
    "an id that is none": (lambda app: app.jobs.get("7"), "'7' is not a job id"),
    "a status that is none": (lambda app: list(app.jobs.search(status="done")), "the statuses are"),
    "a filter that is none": (lambda app: list(app.jobs.search(colour="red")), "colour"),
    "a negative limit": (lambda app: list(app.jobs.search(limit=-1)), "limit=-1"),
    "everything": (lambda app: app.jobs.delete_all(), "would concern every job.*everything=True"),
    "an empty filter": (lambda app: app.jobs.retry_all(limit=3), "would concern every job"),
    "a filter of the verbs that is none": (lambda app: app.jobs.cancel_all(colour=1), "colour"),
    "nothing to edit": (lambda app: app.jobs.edit("0" * 32), "nothing to edit: give priority="),
    "two times": (
        lambda app: app.jobs.edit("0" * 32, delay=1, run_at=datetime.now(UTC)),
        "delay= and run_at= were both given",
    ),
    "a priority that is none": (lambda app: app.jobs.edit("0" * 32, priority="5"), "priority='5'"),
    "a moment without a zone": (
        lambda app: app.jobs.edit("0" * 32, run_at=datetime(2030, 1, 1)),
        "with a timezone",
    ),
    "a queue to move to": (lambda app: app.jobs.edit("0" * 32, queue="a b"), "queue='a b'"),
    "a queue to pause": (lambda app: app.queues.pause("a b"), "queue="),
    "a payload that is a list": (lambda app: app.enqueue("t", [1]), "give a mapping"),
    "a name with spaces": (lambda app: app.enqueue("a b"), "type="),
    "an option that is none": (lambda app: app.enqueue("t", {}, prio=1), "unknown option prio"),
}


@pytest.mark.parametrize("case", list(VERBS), ids=list(VERBS))
def test_invalid_commands_are_refused(app: Holdfast, case: str) -> None:
    call, words = VERBS[case]
    with pytest.raises((HoldfastError, TypeError), match=words):
        call(app)
    assert app.jobs.count() == 0


REGISTRATIONS: dict[str, tuple[Callable[[Holdfast], object], str]] = {
    "positional only": (
        lambda app: app.task(name="x")(lambda a, /: None),
        "cannot be passed by name",
    ),
    "any number": (lambda app: app.task(name="x")(lambda *args: None), "cannot be passed by name"),
    "a name with spaces": (lambda app: app.task(name="a b")(lambda: None), "name="),
    "no function": (lambda app: app.task(name="x")(7), "decorates a function"),
    "an unknown option": (
        lambda app: app.task(name="x", retries=3)(lambda: None),
        "unknown option retries",
    ),
    "no attempts": (lambda app: app.task(name="x", max_attempts=0)(lambda: None), "max_attempts=0"),
}


@pytest.mark.parametrize("case", list(REGISTRATIONS), ids=list(REGISTRATIONS))
def test_invalid_registrations_are_refused(case: str) -> None:
    call, words = REGISTRATIONS[case]
    app = Holdfast("sqlite:///never-opened.db")
    with pytest.raises(InvalidInput, match=words):
        call(app)
    assert app.tasks == {}


def test_two_tasks_with_one_name_are_refused() -> None:
    app = Holdfast("sqlite:///never-opened.db")
    app.task(name="x")(lambda: None)
    with pytest.raises(InvalidInput, match="'x' is registered already"):
        app.task(name="x")(lambda: None)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://localhost/x", "begins with 'mysql'"),
        ("jobs.db", "begins with 'nothing'"),
        ("sqlite://jobs.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "cannot live in memory"),
        ("sqlite:///a.db?sync=off", "the options are"),
        ("sqlite:///a.db?synchronous=off", "the options are"),
        ("postgresql://localhost:port/x?nonsense=1", "cannot be understood"),
    ],
)
def test_an_invalid_url_is_refused(url: str, words: str) -> None:
    with pytest.raises(InvalidURL, match=words):
        Holdfast(url)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.engine.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidURL, match=r"pip install 'holdfast\[postgres\]'"):
        Holdfast("postgresql://localhost/x")


def test_a_schema_that_is_no_identifier_is_refused() -> None:
    with pytest.raises(InvalidInput, match="lower-case letters"):
        Holdfast("postgresql://localhost/x", schema='x"; DROP SCHEMA public; --')


def test_the_password_is_never_shown() -> None:
    app = Holdfast("postgresql://user:hunter2@127.0.0.1:1/x")
    with pytest.raises(DatabaseUnavailable) as problem:
        app.jobs.count()
    assert "hunter2" not in repr(app) + str(problem.value)


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/x", "sqlite:////no/such/folder/jobs.db"])
def test_an_unreachable_database_is_reported_soon(url: str) -> None:
    with Holdfast(url) as app:
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailable):
            app.enqueue("t")
        assert time.monotonic() - began < 8


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("this is not a database, but a page of notes. " * 50)
    with Holdfast(f"sqlite:///{path}") as app, pytest.raises(HoldfastError, match="not a database"):
        app.enqueue("t")
    assert path.read_text().startswith("this is not a database")


def test_network_filesystems_are_refused() -> None:
    mounts = (
        "22 1 8:1 / / rw - ext4 /dev/root rw\n"
        "40 22 0:50 / /mnt/share rw - nfs4 server:/x rw\n"
        "41 22 0:51 / /mnt/ssh\\040drive rw - fuse.sshfs host: rw\n"
        "42 40 8:2 / /mnt/share/local rw - xfs /dev/sdb rw\n"
    )
    assert filesystem_of(Path("/mnt/share/local/jobs.db"), mounts) == "xfs"
    assert filesystem_of(Path("/mnt/shared/jobs.db"), mounts) == "ext4"
    refuse_network(Path("/srv/jobs.db"), mounts)
    for path in ("/mnt/share/jobs.db", "/mnt/ssh drive/deep/jobs.db"):
        with pytest.raises(UnsafeFilesystem, match="locks cannot be trusted"):
            refuse_network(Path(path), mounts)


def test_calls_after_close_are_refused(database: Database) -> None:
    app = database.app()
    app.enqueue("t")
    app.close()
    app.close()
    with pytest.raises(AppClosed, match="make a new one"):
        app.enqueue("t")


def _child(app: Holdfast, answers: Any) -> None:
    try:
        app.enqueue("t")
        answers.put("enqueued")
    except UsedAfterFork as problem:
        answers.put(str(problem))
    finally:
        answers.close()
        answers.join_thread()
        os._exit(0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_calls_after_a_fork_are_refused(app: Holdfast) -> None:
    app.enqueue("t")
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_child, args=(app, answers))
    child.start()
    answer = answers.get(timeout=20)
    assert f"opened before a fork, by process {os.getpid()} (enqueue() at {__file__}:" in answer
    child.join(20)
    answers.close()
    answers.join_thread()
    assert app.jobs.count() == 1
