"""`holdfast limits`."""

import json

import pytest

from holdfast import Holdfast, Limit
from holdfast.engine.engine import Engine
from tests.cli.command import Command
from tests.support.jobs import new


@pytest.fixture
def app(command: Command) -> Holdfast:
    """An application whose limits a worker has made known."""
    app = command.database.app()

    @app.task(concurrency=2, rate="100/m")
    def send(n: int = 0) -> None: ...

    @app.task(concurrency=Limit(1, per="tenant", fair=True))
    def render(tenant: str) -> None: ...

    rules = [task.rule for task in app.tasks.values()]
    app.engine.declare([row for rule in rules if rule for row in rule.declared])
    return app


def limits(command: Command) -> dict[str, dict[str, object]]:
    return {limit["name"]: limit for limit in command("limits", "list", "--json").json}


def test_list(command: Command, app: Holdfast):
    rules = {name: task.rule for name, task in app.tasks.items() if task.rule}
    app.tasks["render"].enqueue_many([{"tenant": "a"}, {"tenant": "a"}])
    app.engine.beat("w", "{}")
    app.engine.claimer.fetch("default", 5, worker="w", types=list(rules), rules=rules)
    told = limits(command)
    assert told["send"] == {
        "name": "send",
        "concurrency": 2,
        "rate": "100/m",
        "keyed": False,
        "fair": False,
        "tasks": ["send"],
        "running": 0,
        "waiting": 0,
        "changed": False,
    }
    keyed = told["render/tenant"]
    assert (keyed["running"], keyed["waiting"], keyed["fair"]) == (1, 1, True)
    header, *rows = command("limits", "list").out.splitlines()
    assert header.split()[:4] == ["NAME", "TASKS", "AT", "ONCE"]
    assert rows[0].split() == [
        "render/tenant",
        "render",
        "1",
        "-",
        "yes,",
        "fair",
        "1",
        "1",
        "code",
    ]
    assert rows[1].split() == ["send", "send", "2", "100/m", "-", "0", "-", "code"]


def test_no_limits(command: Command):
    assert command("limits", "list", "--json").json == []
    assert len(command("limits", "list").out.splitlines()) == 1
    assert "when it starts" in command.terminal("limits", "list").out


def test_set_and_reset(command: Command, app: Holdfast):
    assert command("limits", "set", "send", "4").out == "send: 4 at once, at most 100/m\n"
    assert limits(command)["send"]["changed"] is True
    assert command("limits", "list").out.splitlines()[2].endswith("operator")
    slower = command("limits", "set", "send", "0", "--rate", "5/s", "--json").json
    assert (slower["concurrency"], slower["rate"]) == (0, "5/s")
    assert command("limits", "reset", "send").out == "send: 2 at once, at most 100/m\n"
    assert limits(command)["send"]["changed"] is False
    keyed = command("limits", "set", "render/tenant", "3").out
    assert keyed == "render/tenant: 3 at once, for each key\n"


def test_a_queues_limit_is_one_of_them(command: Command, now: Engine):
    now.insert([new() for _ in range(3)])
    assert command("limits", "set", "queue:default", "1").out == "queue:default: 1 at once\n"
    now.beat("w", "{}")
    assert len(now.claimer.fetch("default", 3, worker="w", types=["send"], rules={}).jobs) == 1
    assert limits(command)["queue:default"]["running"] == 1
    assert command("limits", "reset", "queue:default").out == "queue:default: no limit\n"
    assert limits(command) == {}
    assert command("limits", "set", "queue:default", "1", "--json").json["concurrency"] == 1
    assert json.loads(command("limits", "reset", "queue:default", "--json").out) is None


@pytest.mark.parametrize(
    ("words", "code", "remedy"),
    [
        (["set", "nope", "3"], 4, "there are render/tenant, send"),
        (["reset", "nope"], 4, "there are render/tenant, send"),
        (["reset", "queue:nope"], 4, "'holdfast limits list'"),
        (["set", "send"], 2, "'holdfast limits reset send'"),
        (["set", "send", "--rate", "fast"], 2, "'100/m'"),
        (["set", "send", "many"], 2, "integer"),
        (["set", "queue:a b", "1"], 2, "letters"),
        (["set"], 2, "NAME"),
    ],
)
def test_wrong_calls(command: Command, app: Holdfast, words: list[str], code: int, remedy: str):
    before = limits(command)
    refused = command("limits", *words)
    assert (refused.code, refused.out) == (code, "")
    assert remedy in refused.err
    assert limits(command) == before
