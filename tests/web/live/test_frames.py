"""What a live event tells, by who is told."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.events.event import JobEvent
from holdfast.jobs.job import EventKind, Status
from holdfast.web.live.frames import FOR_GUESTS, Frame, View

AT = datetime(2030, 1, 2, tzinfo=UTC)
INSIDE = {"worker_id": "host-7", "queue": "vip", "entity_type": "customer", "entity_id": 42}


def told(kind: EventKind, view: View) -> dict[str, Any]:
    event = JobEvent(
        position=1,
        at=AT,
        kind=kind,
        job_id="j",
        type="export",
        status=Status.RUNNING,
        attempts=1,
        max_attempts=3,
        claim_no=1,
        run_at=AT,
        error="E: no",
        result=None,
        result_left_out=False,
        progress=1.0,
        message="m",
        **INSIDE,
    )
    data: dict[str, Any] = json.loads(Frame(event, None).message(view).text)["data"]
    return data


@pytest.mark.parametrize("view", ["guest", "result"])
@pytest.mark.parametrize("kind", FOR_GUESTS)
def test_a_guest_is_not_told_what_is_inside(kind: EventKind, view: View) -> None:
    data = told(kind, view)
    assert data.keys() - {"result_left_out"} == told(kind, "whole").keys() - {"result_left_out"}
    assert {key: data[key] for key in INSIDE if key in data and data[key] is not None} == {}


def test_others_are() -> None:
    data = told(EventKind.STARTED, "whole")
    assert {key: data[key] for key in INSIDE} == INSIDE
