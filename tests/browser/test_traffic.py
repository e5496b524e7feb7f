"""Two thousand jobs go by while pages are open: hints are gathered, nothing piles up."""

import time

from playwright.sync_api import BrowserContext, expect

from tests.browser.shared_site import database, live, nothing_left_behind, site
from tests.browser.site import Site, row, settled
from tests.browser.traffic import OpenPage, enqueue_burst

__all__ = ["database", "live", "nothing_left_behind", "site"]

JOBS = 2000
_MB = 1_000_000


def test_pages_neither_flood_the_server_nor_leak_memory(context: BrowserContext, live: Site):
    live.enter(context, live.token).close()
    enqueue_burst(live, 200)  # what is made once, such as code and charts, is made
    pages = {path: OpenPage(live, context, path) for path in ("/jobs", "/")}
    pages["/jobs"].page.bring_to_front()
    before = {path: one.sample() for path, one in pages.items()}
    begun = time.monotonic()
    last = enqueue_burst(live, JOBS)[-1]
    live.app.jobs.wait_for(last, timeout=90)
    expect(row(pages["/jobs"].page, last)).to_contain_text("completed", timeout=30_000)
    took = time.monotonic() - begun
    for path, one in pages.items():
        settled(one.page)
        after = one.sample()
        asked = after.requests - before[path].requests
        assert asked <= 20 + 6 * took, f"{path}: {asked} requests in {took:.0f} s"
        assert after.rows <= 60, path
        assert after.nodes <= before[path].nodes + 3000, (path, before[path], after)
        assert after.listeners <= before[path].listeners + 600, (path, before[path], after)
        assert after.heap <= before[path].heap + 6 * _MB, (path, before[path], after)
