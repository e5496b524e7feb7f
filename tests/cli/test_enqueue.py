"""`holdfast enqueue`: words of a shell become a job."""

from pathlib import Path

import pytest

from holdfast.engine.engine import Engine
from tests.cli.command import Command, process
from tests.conftest import Database
from tests.support import engine_commands

SHOP = """
from datetime import datetime
from holdfast import Holdfast

app = Holdfast({url!r}, schema={schema!r}, auto_migrate=True)

@app.task(queue="mail", max_attempts=5)
def send(to: str, copies: int = 1, tags: list[str] | None = None, at: datetime | None = None): ...

@app.task
def loose(anything, **more): ...
"""


@pytest.fixture
def shop(database: Database, tmp_path: Path, command: Command) -> Path:
    text = SHOP.format(url=database.url, schema=database.schema)
    (tmp_path / "shop.py").write_text(text)
    return tmp_path


def payload(engine: Engine, output: str) -> object:
    [job] = engine.get([output.strip()])
    return job.payload


def test_by_the_type_hints(shop: Path, now: Engine):
    words = ["send", "to=7", "copies=3", 'tags=["a"]', "at=2030-01-01T00:00:00Z"]
    done = process("enqueue", "shop:app", *words, cwd=shop)
    assert (done.returncode, done.stderr) == (0, "")
    [job] = now.get([done.stdout.strip()])
    assert job.payload == {
        "to": "7",
        "copies": 3,
        "tags": ["a"],
        "at": "2030-01-01T00:00:00Z",
    }
    assert (job.queue, job.max_attempts, job.status) == ("mail", 5, "pending")


def test_without_type_hints(shop: Path, now: Engine):
    words = ["loose", "anything=7", "more=text", "exact:=null", "empty=", "equals=a=b"]
    done = process("enqueue", "shop", *words, cwd=shop)
    assert payload(now, done.stdout) == {
        "anything": 7,
        "more": "text",
        "exact": None,
        "empty": "",
        "equals": "a=b",
    }


def test_the_application_from_the_environment(shop: Path, now: Engine):
    done = process("enqueue", "send", "--payload", '{"to":"ann"}', cwd=shop, HOLDFAST_APP="shop")
    assert payload(now, done.stdout) == {"to": "ann"}
    both = process("enqueue", "shop:app", "send", "to=ben", cwd=shop, HOLDFAST_APP="nowhere")
    assert payload(now, both.stdout) == {"to": "ben"}


def test_arguments_that_do_not_fit(shop: Path, now: Engine):
    for words, told in [
        (["send", "copies=many", "to=ann"], "copies: Input should be a valid integer"),
        (["send"], "to: is missing"),
        (["send", "to=ann", "size=7"], "size: there is no such argument"),
    ]:
        refused = process("enqueue", "shop:app", *words, cwd=shop)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert told in refused.stderr
    assert now.counts()["pending"] == 0


def test_an_unknown_task(shop: Path):
    refused = process("enqueue", "shop:app", "sned", "to=ann", cwd=shop)
    assert refused.returncode == 4
    assert "registered: loose, send" in refused.stderr


def test_by_url_alone(command: Command, now: Engine):
    done = command("enqueue", "elsewhere", "n=1", "text=a b", "--queue", "media", "--json")
    assert (done.json["type"], done.json["payload"]) == ("elsewhere", {"n": 1, "text": "a b"})
    assert (done.json["queue"], done.json["created"]) == ("media", True)


def test_options(command: Command):
    options = ["--priority", "-5", "--queue", "q", "--delay", "1h", "--key", "k", "--entity", "a:7"]
    made = command("enqueue", "send", *options, "--max-attempts", "9", "--json").json
    assert (made["priority"], made["queue"], made["key"], made["max_attempts"]) == (-5, "q", "k", 9)
    assert (made["entity_type"], made["entity_id"], made["status"]) == ("a", 7, "scheduled")
    by_environment = command("enqueue", "send", "--json", HOLDFAST_ENQUEUE_PRIORITY="4").json
    assert by_environment["priority"] == 4


def test_a_live_key(command: Command):
    first = command("enqueue", "send", "--key", "k")
    again = command("enqueue", "send", "--key", "k")
    assert (again.code, again.out) == (0, first.out)
    assert "not added" in again.err
    refused = command("enqueue", "send", "--key", "k", "--on-conflict", "raise")
    assert refused.code == 1


def test_an_idempotency_key(command: Command, now: Engine):
    first = command("enqueue", "send", "--idempotency-key", "order-7")
    engine_commands.cancel(now, [first.out.strip()], keep=3600.0)
    again = command("enqueue", "send", "--idempotency-key", "order-7", "--on-conflict", "existing")
    assert (again.code, again.out) == (0, first.out)
    assert "this job (cancelled) has the idempotency key 'order-7'" in again.err
    told = command("enqueue", "send", "--idempotency-key", "order-7", "--json").json
    assert (told["created"], told["idempotency_key"]) == (False, "order-7")
    shown = command("jobs", "show", first.out.strip())
    assert "idempotency_key: order-7" in shown.out


@pytest.mark.parametrize(
    "words",
    [
        ["n=1"],
        ["shop:app", "send", "surplus"],
        ["send", "--payload", "{"],
        ["send", "--payload", "[1]"],
        ["send", "--payload", "{}", "n=1"],
        ["send", "n:=nothing"],
        ["send", "--entity", "movie"],
        ["send", "--delay", "soon"],
        ["send", "--priority", "high"],
        ["send", "--idempotency-key", ""],
        ["a b"],
        [],
    ],
)
def test_wrong_calls(command: Command, now: Engine, words: list[str]):
    assert command("enqueue", *words).code == 2
    assert now.counts()["pending"] == 0
