"""`holdfast workflows`."""

import pytest

from holdfast import Discard, Holdfast
from holdfast.testing import drain
from holdfast.workflows.builder import Workflow
from tests.cli.command import Command


@pytest.fixture
def app(command: Command) -> Holdfast:
    app = command.database.app()

    @app.task(max_attempts=1)
    def step(name: str) -> None:
        if name == "bad":
            raise Discard("it is bad")

    return app


@pytest.fixture
def flow(app: Holdfast) -> Workflow:
    """One job failed, one is held, one was cancelled."""
    step = app.tasks["step"]
    with app.workflow("nightly") as flow:
        bad = flow.add(step.using(node="first"), name="bad")
        flow.add(step.using(node="held", after=[bad], on_parent_failure="hold"), name="a")
        flow.add(step.using(node="dropped", after=[bad]), name="b")
    drain(app, raise_errors=False)
    return flow


def test_list_and_show(command: Command, flow: Workflow):
    [told] = command("workflows", "list", "--json").json
    assert (told["id"], told["name"], told["status"]) == (flow.id, "nightly", "running")
    assert told["counts"]["failed"] == told["counts"]["blocked"] == told["counts"]["cancelled"] == 1
    whole = command("workflows", "show", flow.id, "--json").json
    assert [job["node"] for job in whole["jobs"]] == ["first", "held", "dropped"]
    assert whole["jobs"][1]["after"] == [whole["jobs"][0]["id"]]
    text = command("workflows", "show", flow.id).out
    assert "67% of 3" in text
    assert "Cancelled: first, which it waited for, failed" in text
    assert "held: first failed" in text
    assert "nightly" in command("workflows", "list").out


def test_release_retry_cancel(command: Command, app: Holdfast, flow: Workflow):
    held = app.workflows.jobs(flow.id)[1]
    assert "held: first" in command("jobs", "show", held.id).out
    assert command("workflows", "release", held.id, "--json").json["status"] == "pending"
    assert command("workflows", "release", held.id).code == 1
    assert command("workflows", "retry", flow.id).out == "2 jobs to be done again\n"
    refused = command("workflows", "cancel", flow.id)
    assert (refused.code, "add --yes" in refused.err) == (2, True)
    told = command("workflows", "cancel", flow.id, "--yes", "--json").json
    assert told["status"] == "cancelled"


def test_unknown(command: Command, app: Holdfast):
    app.engine.open()
    found = command("workflows", "show", "00000000-0000-7000-8000-000000000000")
    assert (found.code, "no workflow" in found.err) == (4, True)
