"""`holdfast prune`: what workers do all the time, by hand."""

from pathlib import Path
from textwrap import dedent

import pytest

from holdfast.engine.engine import Engine
from holdfast.jobs import outcome
from tests.cli.command import Command
from tests.support.jobs import running


def ended(engine: Engine, keep: float, type: str = "send", **fields: str) -> str:
    job = running(engine, type=type, **fields)
    engine.finish([outcome.completed(job, keep=keep)])
    return job.id


def left(engine: Engine, *ids: str) -> list[bool]:
    found = {job.id for job in engine.get(ids)}
    return [id in found for id in ids]


def test_what_is_over_goes(command: Command, now: Engine):
    gone, kept = ended(now, keep=0), ended(now, keep=3600)
    look = command("prune", "--dry-run")
    assert look.out == "1 jobs would go: 1 completed\n"
    assert left(now, gone, kept) == [True, True]
    assert command("prune").out == "pruned 1 jobs\n"
    assert left(now, gone, kept) == [False, True]
    assert command("prune", "--json").json == {"pruned": 0, "failed": 0, "kept": 0}


def test_all_that_are_old_go_after_a_question(command: Command, now: Engine):
    ids = [ended(now, keep=3600) for _ in range(3)]
    assert command("prune", "--older-than", "1h", "--yes").out == "pruned 0 jobs\n"
    refused = command("prune", "--older-than", "0")
    assert (refused.code, "3 jobs finished over 0 ago" in refused.err) == (2, True)
    assert "--yes" in refused.err
    asked = command.terminal("prune", "--older-than", "0", typed="n\n")
    assert (asked.code, "3 jobs finished over 0 ago: delete them?" in asked.out) == (1, True)
    assert left(now, *ids) == [True] * 3
    told = command("prune", "--older-than", "0", "--dry-run", "--json").json
    assert told == {"due": {"cancelled": 0, "completed": 3, "failed": 0}, "kept": 0}
    assert command("prune", "--older-than", "0", "--yes").out == "pruned 3 jobs\n"
    assert command("prune", "--older-than", "soon").code == 2


def test_with_an_application_its_hooks_are_called(
    command: Command, now: Engine, monkeypatch: pytest.MonkeyPatch
):
    source = f"""
        from holdfast import Holdfast

        app = Holdfast({command.database.url!r}, schema={command.database.schema!r}, archive="old")

        def on_prune(job):
            open("pruned", "a").write(job.payload["name"] + "\\n")
            if job.payload["name"] == "bad":
                raise ValueError("not yet")

        @app.task(on_prune=on_prune)
        def hooked(name: str): ...
    """
    (command.cwd / "shop.py").write_text(dedent(source))
    good = ended(now, 0, "hooked", payload='{"name":"good"}')
    bad = ended(now, 0, "hooked", payload='{"name":"bad"}')
    now.maintenance.declare_hooks(["hooked"])
    stays = "their tasks have an on_prune that is not known here; give the application"
    assert command("prune").out == f"pruned 0 jobs\n2 stay: {stays}\n"
    done = command.process("prune", "shop:app", HOLDFAST_URL="")
    assert done.stdout.startswith("pruned 1 jobs\n1 could not go"), done.stderr
    assert sorted((command.cwd / "pruned").read_text().split()) == ["bad", "good"]
    assert left(now, good, bad) == [False, True]
    assert "prune_error: ValueError: not yet" in command("jobs", "show", bad).out
    assert [path.suffix for path in Path(command.cwd, "old").iterdir()] == [".gz"]
