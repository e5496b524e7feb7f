"""Screenshots of every page, of the demo after a simulated hour.

python -m tests.browser.pictures

Those that the documentation shows go to docs/pictures, in light and dark; the others, and narrow ones,
to docs/pictures/more, which is not kept.
"""

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from holdfast import Discard, Holdfast
from holdfast.access import Access
from holdfast.core.clock import FakeClock
from holdfast.testing import drain
from holdfast.web import dashboard
from tests.browser.site import NARROW, WIDE, served, settled, until
from tools.programs import need

PLACE = Path(__file__).parents[2] / "docs" / "pictures"
SHOWN = ("overview", "jobs", "job", "workflow", "errors")
VARIANTS: dict[str, dict[str, Any]] = {
    "light": {"viewport": WIDE, "color_scheme": "light"},
    "dark": {"viewport": WIDE, "color_scheme": "dark"},
    "narrow": {"viewport": NARROW, "color_scheme": "light"},
}
MINUTES = 56
_rng = random.Random(7)
# Task, queue, how often, seconds from and to, how many of a hundred fail and with what.
_PAST: tuple[tuple[str, str, int, float, float, int, str], ...] = (
    ("fetch_feed", "demo", 12, 0.1, 0.6, 1, "feed.xml: not well-formed"),
    ("transcode_video", "demo.media", 4, 4.0, 9.0, 0, ""),
    ("call_flaky_api", "demo", 4, 0.2, 0.4, 6, "503 Service Unavailable"),
    ("parse_upload", "demo", 1, 0.05, 0.2, 60, "upload.xls is not a spreadsheet"),
    ("send_reminder", "demo", 3, 0.1, 0.2, 0, ""),
    ("import_podcast", "demo", 2, 0.3, 0.4, 0, ""),
    ("resize_image", "demo.media", 5, 0.9, 2.7, 2, "cannot identify image file"),
)


def simulate_an_hour(url: str) -> None:
    """Run an hour of the demo's jobs on a fake clock."""
    clock = FakeClock(datetime.now(UTC) - timedelta(minutes=MINUTES))
    with Holdfast(url, auto_migrate=True, clock=clock) as app:
        for name, queue, _, least, most, failing, words in _PAST:
            app.task(name=name, queue=queue, max_attempts=1)(
                _handler(clock, least, most, failing, words)
            )
        for minute in range(MINUTES):
            start = clock.now()
            for name, _, often, *_ in _PAST:
                wave = 1.2 + 0.8 * ((minute % 20) / 20)
                for _ in range(round(often * wave * _rng.uniform(0.5, 1.2) / 2)):
                    app.enqueue(name, {"number": _rng.randrange(1000)})
            drain(app, raise_errors=False)
            clock.advance(60 - min(60.0, (clock.now() - start).total_seconds()))


def _handler(
    clock: FakeClock, least: float, most: float, failing: int, words: str
) -> Callable[[int], int]:
    def handle(number: int) -> int:
        clock.advance(_rng.uniform(least, most) / 8)  # a worker would run them concurrently
        if _rng.randrange(100) < failing:
            raise Discard(words)
        return number

    return handle


def _eventually(look: Callable[[], Iterator[str]]) -> str:
    while (found := next(look(), None)) is None:
        time.sleep(0.1)
    return found


class Demonstration:
    """The running demo, and the jobs to take screenshots of."""

    def __init__(self, app: Holdfast) -> None:
        self.app = app

    def job(self) -> str:
        """A job with some progress."""
        return _eventually(
            lambda: (
                job.id
                for job in self.app.jobs.search(type="transcode_video", status="running", limit=20)
                if (job.progress or 0) > 20
            )
        )

    def workflow(self) -> str:
        """A workflow that is halfway."""
        return _eventually(
            lambda: (
                flow.id for flow in self.app.workflows.list(limit=5) if self._is_halfway(flow.id)
            )
        )

    def _is_halfway(self, id: str) -> bool:
        states = {job.status for job in self.app.workflows.jobs(id)}
        return {"running", "completed", "blocked"} <= states

    def failed(self) -> str:
        return _eventually(
            lambda: (
                job.id
                for job in self.app.jobs.search(type="read_subtitles", status="failed", limit=1)
            )
        )

    def pages(self) -> dict[str, Callable[[], str]]:
        return {
            "overview": lambda: "/",
            "jobs": lambda: "/jobs",
            "job": lambda: f"/jobs/{self.job()}",
            "failed": lambda: f"/jobs/{self.failed()}",
            "workflow": lambda: f"/workflows/{self.workflow()}",
            "waterfall": lambda: f"/workflows/{self.workflow()}?view=waterfall",
            "errors": lambda: "/errors",
            **{
                name: lambda name=name: f"/{name}"  # type: ignore[misc]
                for name in ("workflows", "schedules", "queues", "tasks", "workers", "activity")
            },
            "queue": lambda: "/queues/demo.media",
            "task": lambda: "/tasks/transcode_video",
            "audit": lambda: "/activity?tab=audit",
            "system": lambda: "/system",
        }


def take(browser: Browser, url: str, token: str, show: Demonstration) -> None:
    (PLACE / "more").mkdir(parents=True, exist_ok=True)
    for look, options in VARIANTS.items():
        context = browser.new_context(base_url=url, reduced_motion="reduce", **options)
        assert context.request.post(f"{url}/api/v1/session", data={"token": token}).ok
        page = context.new_page()
        for name, path in show.pages().items():
            page.goto(path())
            wait(page, name)
            kept = name in SHOWN and look != "narrow"
            folder = PLACE if kept else PLACE / "more"
            page.screenshot(path=folder / f"{name}-{look}.png", full_page=look == "narrow")
            print(f"{name}-{look}.png", flush=True)
        context.close()


def wait(page: Page, name: str) -> None:
    """Wait for the content of a screenshot."""
    page.locator("#main h1").first.wait_for(state="attached")
    settled(page)
    until(page, "document.querySelector('.live-live')")
    if name == "activity":
        until(page, "document.querySelectorAll('#main tbody tr').length > 12")
    if name in ("overview", "queue", "task"):
        until(page, "document.querySelector('.chart canvas')")


def main() -> int:
    path = need("chromium")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/media.db"
        simulate_an_hour(url)
        os.environ["HOLDFAST_URL"] = url  # which the demonstration reads when it is imported
        from holdfast.demo import feeder, tasks

        app = tasks.app
        token = Access(app).first_token()
        assert token is not None
        server = dashboard(app, hosts=["127.0.0.1"], title="Media")
        feeding = feeder.Feeder()
        with (
            served(server, server.state.web.close) as at,
            app.worker(queues="demo=12,demo.media=6", grace=2),
            sync_playwright() as playwright,
        ):
            feeding.start()
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            try:
                take(browser, at, token, Demonstration(app))
            finally:
                browser.close()
                feeding.stop()
                print(feeding.problem or "", file=sys.stderr)
        app.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
