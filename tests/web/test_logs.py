"""`GET /jobs/{id}/logs`: lines in order, page by page, for those who may see payloads."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from holdfast import Holdfast, LogLine
from holdfast.access import Access
from holdfast.core.ids import new_id
from holdfast.jobs.job import Job
from holdfast.jobs.job_json import iso
from holdfast.web import dashboard
from tests.conftest import Database

Ask = Callable[..., httpx.Response]


@pytest.fixture
def holdfast(database: Database) -> Holdfast:
    app = database.app()

    @app.task
    def send() -> None: ...

    return app


@pytest.fixture
def ask(holdfast: Holdfast) -> Iterator[Ask]:
    """`ask(path, role="viewer", **params)`."""
    access = Access(holdfast)
    server = dashboard(holdfast)
    secrets = {
        role: access.create(role, role=role)[1] for role in ("viewer", "operator", "enqueue")
    }

    def ask(path: str, role: str = "operator", **params: Any) -> httpx.Response:
        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(server, client=("127.0.0.1", 123))
            headers = {"Authorization": f"Bearer {secrets[role]}"}
            url = "http://127.0.0.1:8000"
            async with httpx.AsyncClient(
                transport=transport, base_url=url, headers=headers
            ) as client:
                return await client.get(f"/api/v1{path}", params=params)

        return asyncio.run(go())

    yield ask
    server.state.web.close()


def log(app: Holdfast, job: Job, count: int, claim_no: int = 1) -> None:
    app.engine.log(
        [
            LogLine(
                job_id=job.id,
                claim_no=claim_no,
                attempt=claim_no,
                line_no=number,
                at=job.created_at + timedelta(seconds=number),
                level="warning",
                text=f"line {number} <b>",
            )
            for number in range(1, count + 1)
        ]
    )


def test_lines_and_how_to_go_on(holdfast: Holdfast, ask: Ask) -> None:
    job = holdfast.enqueue("send")
    assert ask(f"/jobs/{job.id}/logs").json() == {"lines": [], "next": None}
    log(holdfast, job, 3)
    log(holdfast, job, 2, claim_no=2)
    page = ask(f"/jobs/{job.id}/logs", limit=4).json()
    assert page["lines"][0] == {
        "claim_no": 1,
        "attempt": 1,
        "line_no": 1,
        "at": iso(job.created_at + timedelta(seconds=1)),
        "level": "warning",
        "text": "line 1 <b>",
    }
    assert (len(page["lines"]), page["next"]) == (4, "2.1")
    page = ask(f"/jobs/{job.id}/logs", after=page["next"]).json()
    assert ([line["line_no"] for line in page["lines"]], page["next"]) == ([2], "2.2")
    assert ask(f"/jobs/{job.id}/logs", after="2.2").json() == {"lines": [], "next": "2.2"}
    log(holdfast, job, 3, claim_no=2)
    assert ask(f"/jobs/{job.id}/logs", after="2.2").json()["next"] == "2.3"


def test_500_lines_are_a_page_unless_another_limit_is_given(holdfast: Holdfast, ask: Ask) -> None:
    job = holdfast.enqueue("send")
    log(holdfast, job, 501)
    assert len(ask(f"/jobs/{job.id}/logs").json()["lines"]) == 500
    assert len(ask(f"/jobs/{job.id}/logs", limit=1000).json()["lines"]) == 501


def test_what_is_refused(holdfast: Holdfast, ask: Ask) -> None:
    job = holdfast.enqueue("send")
    assert ask(f"/jobs/{new_id()}/logs").status_code == 404
    assert ask("/jobs/x/logs").status_code == 422
    assert ask(f"/jobs/{job.id}/logs", limit=0).status_code == 422
    bad = ask(f"/jobs/{job.id}/logs", after="here")
    assert bad.status_code == 422
    assert "give the cursor of a line" in bad.json()["detail"]


def test_who_may_not_see_payloads_may_not_see_lines(holdfast: Holdfast, ask: Ask) -> None:
    job = holdfast.enqueue("send")
    assert ask(f"/jobs/{job.id}/logs", "enqueue").status_code == 403
    assert ask(f"/jobs/{job.id}/logs", "operator").status_code == 200
