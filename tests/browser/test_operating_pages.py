"""Queues, tasks, schedules, workers, workflows, activity and the system: what they show, and what can
be done there by whom."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast.core.ids import new_id
from tests.browser.application import GATES
from tests.browser.page_waits import opened
from tests.browser.site import WIDE, Site

PAGES = ("queues", "tasks", "schedules", "workers", "workflows", "activity", "system")


@pytest.fixture(autouse=True)
def gates():
    yield
    GATES.open_all()


def flow(site: Site) -> Any:
    """A job that fails, one that is held by that, one that completes."""
    with site.app.workflow("import") as made:
        first = made.add(site.app.tasks["crash"].using(node="fetch"))
        made.add(
            site.app.tasks["add"].using(after=[first], node="merge", on_parent_failure="hold"), a=1
        )
        made.add(site.app.tasks["add"].using(node="aside"), a=2)
    return made


def test_a_queue_is_paused_resumed_limited_and_purged(page: Page, site: Site):
    site.app.enqueue("render", {"title": "film"})
    opened(page, "/queues")
    menu = page.get_by_role("button", name="Actions for media")
    menu.click()
    page.get_by_role("menuitem", name="Pause for 1 hour").click()
    expect(page.get_by_role("row", name="media").get_by_text("paused, goes on")).to_be_visible()
    menu.click()
    page.get_by_role("menuitem", name="Resume", exact=True).click()
    expect(page.get_by_text("paused, goes on")).to_have_count(0)
    menu.click()
    page.get_by_role("menuitem", name="Edit limit").click()
    page.get_by_label("At most at once").fill("3")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("3 at once")).to_be_visible()
    menu.click()
    page.get_by_role("menuitem", name="Purge").click()
    purge = page.get_by_role("button", name="Purge")
    expect(purge).to_be_disabled()
    page.get_by_label("Type media to confirm").fill("media")
    purge.click()
    expect(page.get_by_text("1 job deleted")).to_be_visible()
    assert site.app.jobs.count(queue="media") == 0


def test_a_viewer_is_offered_no_action(chromium: Browser, site: Site):
    site.app.enqueue("render", {"title": "film"})
    made = flow(site)
    _, token = site.access.create("guest", "viewer")
    context = chromium.new_context(base_url=site.url, viewport=WIDE)  # type: ignore[arg-type]
    assert context.request.post(f"{site.url}/api/v1/session", data={"token": token}).ok
    page = site.watch(context.new_page())
    for address in (*PAGES, "queues/media", "tasks/add", f"workflows/{made.id}"):
        opened(page, f"/{address}")
        offered = page.locator("main").get_by_role("button").all_inner_texts()
        found = {"Actions", "Run …", "New token", "Cancel", "Where it stands"} & set(offered)
        assert found == set(), address
        expect(page.locator("main [aria-haspopup=menu], main [role=switch]")).to_have_count(0)
    context.close()


def test_a_task_is_run_from_its_own_page(page: Page, site: Site):
    before = site.app.jobs.count(type="add")
    with site.app.worker():
        opened(page, "/tasks/add")
        expect(page.get_by_text("Add two numbers.")).to_be_visible()
        page.get_by_role("button", name="Run …").click()
        page.get_by_role("dialog").locator("#arg-a").fill("40")
        page.get_by_role("dialog").get_by_role("button", name="Enqueue").click()
        expect(page.get_by_role("status").get_by_text("add")).to_be_visible()
    assert site.app.jobs.count(type="add") == before + 1


def test_a_schedule_is_disabled_and_rescheduled(page: Page, site: Site):
    site.app.tasks["tidy"].using(key="nightly", every="1h").schedule()
    opened(page, "/schedules")
    row = page.get_by_role("listitem").filter(has_text="nightly")
    expect(row.get_by_text("every hour")).to_be_visible()
    row.get_by_role("switch").click()
    expect(row.get_by_role("switch", checked=False)).to_be_visible()
    assert not site.app.schedules.get("tidy", "nightly").enabled
    row.get_by_role("switch").click()
    expect(row.get_by_role("switch", checked=True)).to_be_visible()
    page.get_by_role("button", name="Actions for tidy · nightly").click()
    page.get_by_role("menuitem", name="Choose next run").click()
    page.get_by_label("When").fill("3d")
    page.get_by_role("button", name="Save").click()
    expect(row.get_by_text("in 2 d")).to_be_visible()


def test_a_worker_shows_its_stacks(page: Page, site: Site):
    with site.app.worker(queues="media=2"):
        gate = new_id()  # gates stay open for those who come later
        job = site.app.enqueue("render", {"title": "film", "gate": gate})
        opened(page, "/workers")
        card = page.get_by_role("article")
        link = card.locator(f'a[href$="/jobs/{job.id}"]')
        expect(link).to_be_visible(timeout=20_000)  # told with a beat, and read with the next look
        card.get_by_role("button", name="Where it stands").click()
        expect(page.get_by_role("dialog").get_by_text("in render")).to_be_visible(timeout=20_000)
        GATES[gate].set()


def test_a_workflow_is_drawn_released_and_retried(page: Page, site: Site):
    made = flow(site)
    with site.app.worker():
        opened(page, f"/workflows/{made.id}")
        expect(page.get_by_role("link", name="fetch failed")).to_be_visible()
        expect(page.get_by_role("link", name="merge blocked")).to_be_visible()
        page.get_by_role("button", name="Release").click()
        expect(page.get_by_role("link", name="merge completed")).to_be_visible()
        page.get_by_role("button", name="Waterfall").click()
        expect(page.locator(".waterfall li .ran")).to_have_count(3)
        assert "view=waterfall" in page.url
        page.get_by_role("button", name="Retry what failed").click()
        expect(page.get_by_text("1 job will run again")).to_be_visible()
        page.get_by_role("button", name="Graph").click()
        page.get_by_role("link", name="fetch failed").press("Enter")
        expect(page.get_by_role("heading", name="crash")).to_be_visible()


def test_actions_of_operators_are_in_the_audit_log(page: Page, site: Site):
    opened(page, "/activity?tab=audit")
    expect(page.get_by_role("row").filter(has_text="log_in").first).to_be_visible()


def test_a_token_is_shown_once_and_revoked(page: Page, site: Site):
    opened(page, "/system")
    expect(page.get_by_text("0001_")).to_be_visible()
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name").fill("<b>ci</b>")
    page.get_by_label("Role").select_option("enqueue")
    page.get_by_label("Tasks").fill("add, crash")
    page.get_by_role("button", name="Make it").click()
    secret = page.get_by_role("dialog").locator(".secret code").inner_text()
    found = site.access.check(secret)
    assert found is not None
    assert (found.role, set(found.tasks)) == ("enqueue", {"add", "crash"})
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text(secret)).to_have_count(0)
    page.get_by_role("button", name="Revoke <b>ci</b>").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("revoked", exact=True)).to_be_visible()
    assert site.access.check(secret) is None
