"""The pages of jobs: live rows that do not run away, and what can be done with them."""

import re

import pytest
from playwright.sync_api import Page, expect

from holdfast import JobFailed
from holdfast.ids import new_id
from tests.browser.application import GATES
from tests.browser.site import Site
from tests.browser.moments import fetched_again, opened, settled


def row(page: Page, id: str):
    return page.locator(f'tr[data-id="{id}"]')


@pytest.fixture(autouse=True)
def gates():
    yield
    GATES.open_all()


def test_new_jobs_do_not_disturb_who_selects(page: Page, site: Site):
    first, second = (site.app.enqueue("report", {"year": year}) for year in (1, 2))
    opened(page, "/jobs")
    row(page, first.id).get_by_role("checkbox").check()
    row(page, second.id).get_by_role("link").focus()
    third = site.app.enqueue("report", {"year": 3})
    fetched_again(page)
    expect(page.get_by_role("button", name="1 new job")).to_be_visible()
    expect(row(page, third.id)).to_have_count(0)
    expect(row(page, first.id).get_by_role("checkbox")).to_be_checked()
    expect(row(page, second.id).get_by_role("link")).to_be_focused()
    page.get_by_role("button", name="1 new job").click()
    expect(row(page, third.id)).to_be_visible()
    expect(row(page, first.id).get_by_role("checkbox")).to_be_checked()


def test_keys_move_select_and_open(page: Page, site: Site):
    older, newer = (site.app.enqueue("report", {"year": year}) for year in (1, 2))
    opened(page, "/jobs")
    page.keyboard.press("j")
    expect(row(page, newer.id).get_by_role("link")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(row(page, older.id).get_by_role("checkbox")).to_be_checked()
    page.keyboard.press("Escape")
    expect(row(page, older.id).get_by_role("checkbox")).not_to_be_checked()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/jobs/{newer.id}$"))


def test_all_that_match_are_counted_then_changed(page: Page, site: Site):
    for number in range(60):
        site.app.enqueue("report", {"year": number})
    kept = site.app.enqueue("add", {"a": 1})
    opened(page, "/jobs?q=type:report")
    page.get_by_label("Select all rows").check()
    page.get_by_role("button", name="Select all that match").click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel 60 jobs").click()
    expect(page.get_by_text("60 cancelled")).to_be_visible()
    assert site.app.jobs.count(status="cancelled") == 60
    assert site.app.jobs.get(kept.id).status == "pending"


def test_the_address_is_the_view(page: Page, site: Site):
    failed = site.app.enqueue("add", {"a": 1})
    site.app.jobs.cancel(failed.id)
    site.app.enqueue("report", {"year": 1})
    opened(page, "/jobs")
    page.get_by_role("link", name="Cancelled").click()
    expect(page).to_have_url(re.compile(r"status=cancelled"))
    expect(page.locator("tr[data-id]")).to_have_count(1)
    page.keyboard.press("/")
    page.keyboard.type("nothing like it")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No job matches")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Search jobs")).to_have_value("nothing like it")
    page.go_back()
    expect(page.locator("tr[data-id]")).to_have_count(1)


def test_a_job_is_made_from_a_form_and_followed_to_its_end(page: Page, site: Site):
    gate = new_id()
    with site.app.worker(queues="default,media"):
        opened(page, "/jobs")
        page.keyboard.press("n")
        page.get_by_label("Task").select_option("render")
        page.get_by_label("title").fill("<b>Anchor</b>")
        page.get_by_label("gate").fill(gate)
        page.get_by_role("button", name="Enqueue").click()
        page.get_by_role("button", name="Open").click()
        expect(page.locator(".job-head").get_by_text("running")).to_be_visible()
        expect(page.get_by_text("rendering <b>Anchor</b>")).to_be_visible()
        expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "50")
        GATES[gate].set()
        expect(page.locator(".job-head").get_by_text("completed")).to_be_visible()
        expect(page.get_by_role("group", name="Result")).to_contain_text("frames: 24")


def test_why_it_failed_is_on_one_page(page: Page, site: Site):
    with site.app.worker():
        job = site.app.enqueue("crash", {"reason": "no anchor"})
        with pytest.raises(JobFailed):
            site.app.jobs.wait_for(job.id, timeout=20)
    opened(page, f"/jobs/{job.id}")
    expect(page.locator(".notice-bad")).to_contain_text("RuntimeError: cannot go on: no anchor")
    expect(page.locator(".trace-frame").last).to_contain_text("raise RuntimeError")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".job-head").get_by_text("pending")).to_be_visible()
    expect(page.get_by_text("Why it waits")).to_be_visible()


def test_a_job_that_is_not_there_is_told(page: Page, site: Site):
    opened(page, "/jobs/01a1e3fc-1472-7000-9dab-000000000000")
    expect(page.get_by_text("There is no such job")).to_be_visible()


def test_a_hidden_tab_asks_for_nothing_and_a_shown_one_for_all(page: Page, site: Site):
    opened(page, "/jobs")
    show = """(hidden) => {
        Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(show, True)
    expect(page.get_by_role("button", name="Live updates: Hidden")).to_be_visible()
    job = site.app.enqueue("report", {"year": 1})
    before = settled(page).evaluate("() => window.holdfastRequests")
    page.evaluate(show, False)
    expect(row(page, job.id)).to_be_visible()
    assert page.evaluate("() => window.holdfastRequests") > before
