"""The jobs page: searched by keyboard, followed live, changed many at a time, exported; its address is
its state."""

import csv
import io
import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.application import GATES
from tests.browser.shared_site import database, live, nothing_left_behind, site
from tests.browser.site import Site, finish, new, pick, row, settled, show, until

__all__ = ["database", "live", "nothing_left_behind", "site"]


def test_the_query_bar_completes_with_the_keyboard(page: Page, live: Site):
    finish(live, live.app.enqueue("add", {"a": 1}), live.app.enqueue("crash"))
    show(page, "/")
    page.keyboard.press("/")
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    settled(page)
    page.keyboard.press("/")
    bar = page.get_by_label("Search jobs")
    expect(bar).to_be_focused()
    page.keyboard.type("sta")
    expect(page.get_by_role("option")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(bar).to_have_value("status:")
    page.keyboard.type("fai")
    expect(page.locator("#query-list code")).to_have_text(["failed"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    expect(bar).to_have_value("status:failed ")
    page.keyboard.type("type:cr")
    expect(page.locator("#query-list code")).to_have_text(["crash"])
    page.keyboard.press("Escape")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.keyboard.type("crash")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{live.url}/jobs?q=status%3Afailed+type%3Acrash")
    expect(page.locator("tr[data-id]").first).to_contain_text("cannot go on: boom")
    expect(page.get_by_role("link", name="add", exact=True)).to_have_count(0)


def test_an_invalid_query_is_explained(page: Page, live: Site):
    show(page, "/jobs?q=status%3Anonsense")
    expect(page.get_by_role("alert")).to_contain_text("nonsense")


def test_the_address_holds_the_state_of_the_page(page: Page, live: Site):
    finish(live, live.app.enqueue("crash"), live.app.enqueue("add", {"a": 1}))
    show(page, "/jobs?status=failed&q=type%3Acrash")
    shown = page.locator("tr[data-id]").count()
    assert shown >= 1
    page.reload()
    settled(page)
    expect(page.locator("tr[data-id]")).to_have_count(shown)
    expect(page.get_by_label("Search jobs")).to_have_value("type:crash")
    expect(page.get_by_role("link", name="Failed")).to_have_attribute("aria-current", "page")
    page.get_by_role("navigation", name="Status").get_by_role("link", name="Completed").click()
    expect(page.get_by_text("No job matches")).to_be_visible()
    page.go_back()
    expect(page.locator("tr[data-id]")).to_have_count(shown)
    page.go_forward()
    expect(page.get_by_text("No job matches")).to_be_visible()
    page.get_by_role("link", name="Show all jobs").click()
    expect(page).to_have_url(f"{live.url}/jobs")


def test_rows_update_live_and_keep_the_users_selection(page: Page, live: Site):
    """A job runs and ends without a reload; the selection, the scroll and the focus stay."""
    gate = new()
    queue = f"q-{gate}"
    old = [live.app.enqueue("add", {"a": n}, queue=queue, delay="1h") for n in range(30)]
    with live.app.worker(queues=f"{queue}=1", grace=5):
        job = live.app.enqueue("render", {"title": "film", "gate": gate}, queue=queue)
        show(page, f"/jobs?q=queue%3A{queue}")
        expect(row(page, job.id)).to_contain_text("running")
        expect(row(page, job.id)).to_contain_text("rendering film")
        row(page, old[3].id).get_by_role("checkbox").check()
        page.mouse.wheel(0, 200)
        until(page, "scrollY > 100")
        row(page, old[5].id).locator("a[data-row]").focus()
        before = page.evaluate("scrollY")
        loads = page.evaluate("performance.getEntriesByType('navigation').length")
        page.evaluate("window.stillHere = true")
        other = live.app.enqueue("add", {"a": 99}, queue=queue)
        GATES[gate].set()
        finish(live, job, other)
        expect(row(page, job.id)).to_contain_text("completed")
        expect(page.get_by_text("1 new job")).to_be_visible()
        expect(row(page, other.id)).to_have_count(0)
        assert page.evaluate("window.stillHere") is True
        assert page.evaluate("performance.getEntriesByType('navigation').length") == loads
        assert page.evaluate("scrollY") == pytest.approx(before, abs=40)  # the line of what is new
        expect(row(page, old[3].id).get_by_role("checkbox")).to_be_checked()
        expect(row(page, old[5].id).locator("a[data-row]")).to_be_focused()
        page.get_by_text(
            "1 new job"
        ).click()  # while a row is selected: else they come by themselves
        expect(row(page, other.id)).to_contain_text("completed")


def test_tabs_show_counts_and_more_rows_are_loaded(page: Page, live: Site):
    queue = f"q-{new()}"
    live.app.queues.pause(queue)
    for n in range(120):
        live.app.enqueue("add", {"a": n}, queue=queue)
    show(page, f"/jobs?q=queue%3A{queue}")
    tabs = page.get_by_role("navigation", name="Status")
    expect(tabs.get_by_role("link", name="Pending")).to_have_text("Pending")
    expect(page.locator("tr[data-id]")).to_have_count(50)
    page.get_by_role("button", name="Load more").click()
    expect(page.locator("tr[data-id]")).to_have_count(100)
    page.get_by_role("button", name="Load more").click()
    expect(page.locator("tr[data-id]")).to_have_count(120)
    expect(page.get_by_role("button", name="Load more")).to_have_count(0)
    page.get_by_role("button", name="Clear the search").click()
    counts = live.app.stats().jobs
    assert counts["pending"] >= 120
    for status in ("pending", "completed", "failed"):
        tab = tabs.get_by_role("link", name=status.capitalize())
        expect(tab).to_have_text(f"{status.capitalize()}{counts[status]}")


def test_many_jobs_are_cancelled_retried_and_deleted(page: Page, live: Site):
    """First those that were picked, then all that match; the number is confirmed."""
    queue = f"q-{new()}"
    live.app.queues.pause(queue)
    jobs = [live.app.enqueue("add", {"a": n}, queue=queue) for n in range(70)]
    show(page, f"/jobs?q=queue%3A{queue}")
    for job in jobs[-2:]:
        row(page, job.id).get_by_role("checkbox").check()
    expect(page.get_by_text("2 jobs selected")).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cancel 2 jobs?")
    dialog.get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.get_by_text("2 cancelled")).to_be_visible()
    expect(row(page, jobs[-1].id)).to_contain_text("cancelled")
    assert {live.app.jobs.get(job.id).status for job in jobs[-2:]} == {"cancelled"}
    assert live.app.jobs.get(jobs[0].id).status == "pending"

    page.get_by_role("navigation", name="Status").get_by_role("link", name="Cancelled").click()
    expect(page.locator("tr[data-id]")).to_have_count(2)
    page.get_by_label("Select all rows").check()
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(dialog).to_contain_text("Retry 2 jobs?")
    dialog.get_by_role("button", name="Retry 2 jobs").click()
    expect(page.get_by_text("2 retried")).to_be_visible()
    assert {live.app.jobs.get(job.id).status for job in jobs[-2:]} == {"pending"}

    page.get_by_role("navigation", name="Status").get_by_role("link", name="All").click()
    expect(page.locator("tr[data-id]")).to_have_count(50)
    page.get_by_label("Select all rows").check()
    page.get_by_role("button", name="Select all that match").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog).to_contain_text("Delete 70 jobs?")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog.get_by_role("button", name="Delete 70 jobs").click()
    expect(page.get_by_text("70 deleted")).to_be_visible()
    expect(page.get_by_text("No job matches")).to_be_visible()


def test_the_shown_jobs_can_be_exported(page: Page, live: Site, tmp_path: Path):
    key = f"=cmd|{new()}"
    queue = f"q-{new()}"
    live.app.queues.pause(queue)
    ids = {live.app.enqueue("add", {"a": n}, queue=queue).id for n in range(3)}
    ids.add(live.app.enqueue("add", {"a": 9}, queue=queue, key=key).id)
    show(page, f"/jobs?q=queue%3A{queue}")
    with page.expect_download() as waiting:
        pick(page, "Export", "CSV")
    waiting.value.save_as(tmp_path / "jobs.csv")
    text = (tmp_path / "jobs.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {one["id"] for one in rows} == ids
    assert [one["key"] for one in rows if one["key"]] == [f"'{key}"]
    with page.expect_download() as waiting:
        pick(page, "Export", "JSON lines")
    waiting.value.save_as(tmp_path / "jobs.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "jobs.jsonl").read_text().splitlines()]
    assert {one["id"] for one in lines} == ids
    assert waiting.value.suggested_filename.endswith(".jsonl")


def test_rows_are_navigated_and_selected_with_the_keyboard(page: Page, live: Site):
    queue = f"q-{new()}"
    live.app.queues.pause(queue)
    jobs = [live.app.enqueue("add", {"a": n}, queue=queue) for n in range(3)]
    show(page, f"/jobs?q=queue%3A{queue}")
    links = [row(page, job.id).locator("a[data-row]") for job in reversed(jobs)]
    page.keyboard.press("j")
    expect(links[0]).to_be_focused()
    page.keyboard.press("j")
    expect(links[1]).to_be_focused()
    page.keyboard.press("x")
    expect(page.get_by_text("1 job selected")).to_be_visible()
    page.keyboard.press("k")
    expect(links[0]).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_text("1 job selected")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{live.url}/jobs/{jobs[-1].id}")
