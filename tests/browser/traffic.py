"""Pages that stay open under load: their requests, memory and rows."""

from dataclasses import dataclass
from typing import Any

from playwright.sync_api import BrowserContext, CDPSession, Page

from tests.browser.site import Site, show


@dataclass(frozen=True)
class Sample:
    heap: int  #: bytes of JavaScript in use, after a collection
    nodes: int
    listeners: int
    requests: int  #: that the page has made so far
    rows: int


class OpenPage:
    """A page that stays open."""

    def __init__(self, site: Site, context: BrowserContext, path: str) -> None:
        self.page: Page = site.watch(context.new_page())
        show(self.page, path)
        self._devtools: CDPSession = context.new_cdp_session(self.page)
        self._devtools.send("Performance.enable")

    def sample(self) -> Sample:
        self._devtools.send("HeapProfiler.collectGarbage")
        self._devtools.send("HeapProfiler.collectGarbage")
        answer: dict[str, Any] = self._devtools.send("Performance.getMetrics")
        found = {one["name"]: one["value"] for one in answer["metrics"]}
        return Sample(
            heap=int(found["JSHeapUsedSize"]),
            nodes=int(found["Nodes"]),
            listeners=int(found["JSEventListeners"]),
            requests=self.page.evaluate("window.holdfastRequests"),
            rows=self.page.locator("tbody tr").count(),
        )


def enqueue_burst(site: Site, jobs: int) -> list[str]:
    """Enqueue many jobs of several kinds; returns the last ids."""
    app = site.app
    ids: list[str] = []
    add, crash = app.find_task("add"), app.find_task("crash")
    for start in range(0, jobs, 100):
        some = [{"a": number} for number in range(start, min(start + 95, jobs))]
        ids = [job.id for job in add.enqueue_many(some)]
        crash.enqueue_many([{"reason": f"burst {start}"}] * 5)
    return ids
