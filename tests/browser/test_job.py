"""One job: followed while it runs, explained while it waits, and everything that is done with it."""

import ast
import json
import subprocess
from typing import Any

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.application import GATES
from tests.browser.shared_site import database, live, nothing_left_behind, site
from tests.browser.site import Site, finish, new, pick, settled, show

__all__ = ["database", "live", "nothing_left_behind", "site"]

BIG = 2**63 - 25


def copied(page: Page, item: str) -> str:
    pick(page, "More", item)
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def test_progress_moves_without_a_reload(page: Page, live: Site):
    gate = new()
    job = live.app.enqueue("climb", {"gate": gate})
    show(page, f"/jobs/{job.id}")
    page.evaluate("window.stillHere = true")
    bar = page.get_by_role("progressbar", name="Progress")
    expect(bar).to_have_attribute("aria-valuenow", "20")
    expect(page.get_by_text("at 20", exact=True)).to_be_visible()
    expect(page.get_by_text(" left")).to_be_visible()
    GATES[f"{gate}-20"].set()
    expect(bar).to_have_attribute("aria-valuenow", "60")
    GATES[f"{gate}-60"].set()
    expect(page.locator(".job-head")).to_contain_text("completed")
    expect(page.get_by_role("region", name="Result", exact=True)).to_contain_text("null")
    assert page.evaluate("window.stillHere") is True


def test_the_page_shows_why_a_job_waits(page: Page, live: Site):
    queue = f"q-{new()}"
    live.app.queues.pause(queue)
    job = live.app.enqueue("add", {"a": 1}, queue=queue)
    show(page, f"/jobs/{job.id}")
    expect(page.get_by_text("Why it waits")).to_be_visible()
    expect(page.locator(".reasons")).to_contain_text("paused")


def test_numbers_are_exact_in_every_direction(page: Page, context: BrowserContext, live: Site):
    """An integer beyond what JavaScript's numbers hold: shown, copied as curl, and run by curl."""
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=live.url)
    payload: dict[str, Any] = {"value": {"id": BIG, "deep": [{"it's": 'a "quote"'}, None, True]}}
    job = live.app.enqueue("echo", payload)
    finish(live, job)
    show(page, f"/jobs/{job.id}")
    for name in ("Arguments", "Result"):
        tree = page.get_by_role("region", name=name, exact=True)
        expect(tree).to_contain_text(str(BIG))

    command = copied(page, "Copy as curl").replace("TOKEN", live.token)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    same = json.loads(done.stdout)["id"]
    assert same != job.id
    assert live.app.jobs.get(same).payload == payload

    code = ast.parse(copied(page, "Copy as Python"), mode="eval").body
    assert isinstance(code, ast.Call)
    assert [ast.literal_eval(one) for one in code.args] == ["echo", payload]
    assert "--payload" in copied(page, "Copy as command")


def test_attempts_have_their_tracebacks(page: Page, live: Site):
    job = live.app.enqueue("crash", {"reason": "no paper"})
    finish(live, job)
    show(page, f"/jobs/{job.id}")
    expect(page.locator(".notice-bad")).to_contain_text("cannot go on: no paper")
    attempt = page.locator(".attempt")
    expect(attempt).to_contain_text("RuntimeError: cannot go on: no paper")
    expect(attempt.locator(".trace-code").first).to_contain_text("raise RuntimeError")


def test_a_failed_job_is_retried(page: Page, live: Site):
    gate = new()
    job = live.app.enqueue("mend", {"gate": gate})
    finish(live, job)
    show(page, f"/jobs/{job.id}")
    expect(page.locator(".job-head")).to_contain_text("failed")
    GATES[gate].set()
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".job-head")).to_contain_text("completed")
    expect(page.get_by_role("region", name="Result", exact=True)).to_contain_text("mended")


def test_a_running_job_is_cancelled_after_a_confirmation(page: Page, live: Site):
    job = live.app.enqueue("render", {"title": "long", "gate": new()})
    show(page, f"/jobs/{job.id}")
    expect(page.locator(".job-head")).to_contain_text("running")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(page.locator(".job-head")).to_contain_text("cancelled")


def test_a_scheduled_job_is_edited_and_run_now(page: Page, live: Site):
    job = live.app.enqueue("add", {"a": 40}, delay="1h")
    show(page, f"/jobs/{job.id}")
    pick(page, "More", "Edit")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Priority").fill("7")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("region", name="Facts").get_by_text("7", exact=True)).to_be_visible()
    assert live.app.jobs.get(job.id).priority == 7
    page.get_by_role("button", name="Run now").click()
    expect(page.locator(".job-head")).to_contain_text("completed")


def test_the_idempotency_key_is_shown(page: Page, live: Site):
    value = f"order {new()}"
    job = live.app.enqueue("add", {"a": 1}, idempotency_key=value)
    show(page, f"/jobs/{job.id}")
    facts = page.get_by_role("region", name="Facts")
    expect(facts.get_by_text("Idempotency key", exact=True)).to_be_visible()
    expect(facts.get_by_text(value, exact=True)).to_be_visible()


def test_a_job_is_duplicated_with_changes_and_deleted(page: Page, live: Site):
    job = live.app.enqueue("add", {"a": 40})
    finish(live, job)
    show(page, f"/jobs/{job.id}")
    pick(page, "More", "Duplicate with changes")
    drawer = page.get_by_role("dialog")
    expect(drawer.get_by_label("a", exact=False).first).to_be_visible()
    drawer.locator("#arg-a").fill("1")
    drawer.get_by_role("button", name="Enqueue").click()
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("region", name="Result", exact=True)).to_contain_text("3")
    settled(page)
    pick(page, "More", "Delete")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page).to_have_url(f"{live.url}/jobs")
    page.go_back()
    expect(page.get_by_text("There is no such job")).to_be_visible()


def test_a_job_is_enqueued_with_the_form_of_its_schema(page: Page, live: Site):
    show(page, "/")
    page.keyboard.press("n")
    drawer = page.get_by_role("dialog")
    drawer.get_by_label("Task").select_option("order")
    drawer.locator("#arg-customer").fill("Ann")
    drawer.locator("#arg-amount").fill("many")
    drawer.get_by_role("button", name="Enqueue").click()
    expect(drawer).to_contain_text("This is not a number.")
    drawer.locator("#arg-amount").fill("3")
    drawer.locator("#arg-express").select_option("true")
    drawer.locator("#arg-kind").select_option(label="film")
    drawer.locator("#arg-tags").fill('["new"]')
    drawer.get_by_role("button", name="JSON", exact=True).click()
    expect(drawer.locator("#new-payload")).to_have_value(
        '{\n  "customer": "Ann",\n  "amount": 3,\n  "express": true,\n  "kind": "film",\n'
        '  "tags": [\n    "new"\n  ]\n}'
    )
    drawer.get_by_role("button", name="Form", exact=True).click()
    drawer.get_by_role("button", name="Enqueue").click()
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("region", name="Result", exact=True)).to_contain_text(
        "3 film for Ann, express"
    )
