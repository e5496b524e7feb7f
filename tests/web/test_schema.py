"""Thousands of requests made from the description of the API: what comes back is what it describes."""

from collections import Counter
from typing import Any

import pytest
import schemathesis
from schemathesis.engine import events, from_schema

from holdfast import Holdfast
from holdfast.web.security.throttle import Throttle
from tests.support.web import API, Site
from tests.web.conftest import Gate

LEAST = 2_500  # cases on each engine
EXAMPLES = 25
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
)


def config() -> schemathesis.Config:
    return schemathesis.Config.from_dict(
        {
            "seed": 7,
            "generation": {"deterministic": True, "max-examples": EXAMPLES, "no-shrink": True},
            "phases": {
                "examples": {"enabled": False},
                "stateful": {"enabled": False},
                "coverage": {"enabled": True},
                "fuzzing": {"enabled": True},
            },
            "checks": {"enabled": False, **{name: {"enabled": True} for name in CHECKS}},
            "continue-on-failure": True,
        }
    )


def populate(app: Holdfast) -> None:
    """Something of everything that can be asked for."""
    for number in range(3):
        app.tasks["add"].using(key=f"k{number}").enqueue(a=number)
    app.jobs.cancel(app.tasks["add"].enqueue(a=1).id)
    app.tasks["tick"].using(key="x", every="1h").schedule()
    app.chain(app.tasks["add"].call(a=1), app.tasks["tick"].call())


@pytest.mark.timeout(300)
def test_every_answer_is_as_described(site: Site, app: Holdfast, gate: Gate, capsys: Any):
    populate(app)
    gate.open.set()
    free = Throttle(per_minute=1e9, burst=10**9)  # it is not what is looked at here
    site.web.gate._changes = site.web.gate._failures = free
    _, secret = site.access.create("machine", "admin")
    headers = {"Authorization": f"Bearer {secret}"}
    schema = schemathesis.openapi.from_asgi(
        f"{API}/openapi.json", site.server, config=config(), headers=headers
    )
    schema.config.headers = headers
    cases, wrong = Counter[str](), list[str]()
    with app.worker():  # without one, nobody is healthy
        # `/events` is a stream that goes on: tests/web/live
        for event in from_schema(schema.exclude(path_regex="/events$")).execute():
            if isinstance(event, events.ScenarioFinished):
                cases[event.phase.value] += len(event.recorder.interactions)
                wrong += failures(event.recorder)
            elif isinstance(event, events.NonFatalError | events.FatalError):
                wrong.append(f"{event}")
    with capsys.disabled():
        print(f" {sum(cases.values())} cases {dict(cases)}", end="")
    assert "\n".join(wrong[:20]) == ""
    assert sum(cases.values()) >= LEAST


def failures(recorder: Any) -> list[str]:
    found = []
    for id, nodes in recorder.checks.items():
        for node in nodes:
            if node.failure_info is not None:
                case = recorder.cases[id].value
                failure = node.failure_info.failure
                found.append(
                    f"{case.method} {case.formatted_path} {case.query} {str(case.body)[:300]}: "
                    f"{node.name} {failure.title}: {failure.message[:600]}"
                )
    return found
