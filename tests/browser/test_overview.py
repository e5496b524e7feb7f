"""The overview shows the state and the problems of the system; similar errors are retried together."""

import re

from playwright.sync_api import Page, expect

from tests.browser.application import GATES
from tests.browser.shared_site import database, live, nothing_left_behind, site
from tests.browser.site import Site, finish, new, show, until

__all__ = ["database", "live", "nothing_left_behind", "site"]


def test_the_overview_shows_the_state_of_the_system(page: Page, live: Site):
    """Figures, a chart of the last hour, queues and tasks; and the missing worker of a queue is
    reported."""
    finish(live, live.app.enqueue("add", {"a": 1}), live.app.enqueue("crash"))
    live.app.enqueue("add", {"a": 1}, queue="nobody")
    show(page, "/")
    strip = page.get_by_role("region", name="Now")
    expect(strip).to_contain_text("Waiting1")
    expect(strip.get_by_role("link", name=re.compile("Failed"))).to_contain_text("of finished")
    expect(page.get_by_role("img", name=re.compile("In the last 1h: .* completed"))).to_be_visible()
    until(page, "document.querySelectorAll('.chart canvas').length === 2")
    expect(page.get_by_role("table", name="Queues")).to_contain_text("nobody")
    expect(page.get_by_role("table", name="Tasks")).to_contain_text("crash")
    expect(page.get_by_role("region", name="Newest errors")).to_contain_text("RuntimeError")
    expect(page.get_by_role("region", name="Needs attention")).to_be_visible()
    page.get_by_role("button", name="15m").click()
    expect(page).to_have_url(f"{live.url}/?range=15m")
    page.reload()
    expect(page.get_by_role("button", name="15m")).to_have_attribute("aria-pressed", "true")


def test_similar_errors_are_retried_together(page: Page, live: Site):
    gate = f"gate{new()}"
    jobs = [live.app.enqueue("mend", {"gate": gate}) for _ in range(3)]
    other = live.app.enqueue("refuse", {"name": "Ann"})
    finish(live, *jobs, other)
    show(page, "/errors")
    group = page.get_by_role("article", name="LookupError")
    expect(group.locator(".group-count")).to_contain_text("3")
    expect(group).to_contain_text("mend")
    GATES[gate].set()
    group.get_by_role("button", name="Retry all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Retry 3 jobs?")
    dialog.get_by_role("button", name="Retry 3 jobs").click()
    expect(page.get_by_text("3 retried")).to_be_visible()
    expect(group).to_have_count(0)
    expect(page.get_by_role("article", name="Discard")).to_be_visible()
    finish(live, *jobs)
    assert {live.app.jobs.get(job.id).status for job in jobs} == {"completed"}
