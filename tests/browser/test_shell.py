"""What is around the pages: the way in and out, the palette, keys, the theme, and who may see what."""

from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast.web import dashboard
from tests.browser.shared_site import database, live, nothing_left_behind, site
from tests.browser.site import WIDE, Site, finish, row, served, settled, show, until

__all__ = ["database", "live", "nothing_left_behind", "site"]

ACTIONS = ("New job", "Retry", "Cancel", "Delete", "Run now", "Retry all", "Delete all", "Pause")


def test_an_unauthenticated_user_is_asked_for_a_token(context, site: Site):
    page = site.watch(context.new_page())
    page.goto("/jobs?status=failed")
    page.get_by_label("token").fill("hf_" + "x" * 43)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("token").fill(site.token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    expect(page).to_have_url(f"{site.url}/jobs?status=failed")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("token")).to_be_visible()
    page.goto("/jobs")
    expect(page.get_by_label("token")).to_be_visible()


def test_a_revoked_token_ends_the_session(context, site: Site):
    info, secret = site.access.create("for a while", "viewer")
    page = site.enter(context, secret)
    show(page, "/jobs")
    site.access.revoke(info.id)
    page.get_by_role("link", name="Overview", exact=True).click()
    expect(page.get_by_label("token")).to_be_visible()


def test_the_palette_finds_pages_tasks_and_jobs(page: Page, live: Site):
    job = live.app.enqueue("add", {"a": 1})
    finish(live, job)
    show(page, "/")
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Command")
    expect(box).to_be_focused()
    page.keyboard.type("errors")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Errors", exact=True)).to_be_visible()
    page.keyboard.press("Control+k")
    expect(box).to_be_focused()
    page.keyboard.type("jobs of add")
    expect(page.get_by_role("option", name="Jobs of add", exact=True)).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{live.url}/jobs?q=type%3Aadd")
    page.keyboard.press("Control+k")
    expect(box).to_be_focused()
    page.keyboard.type(job.id)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{live.url}/jobs/{job.id}")
    page.keyboard.press("Control+k")
    expect(box).to_be_focused()
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)


def test_keyboard_shortcuts_lead_to_every_page_and_are_listed(page: Page, site: Site):
    show(page, "/")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_contain_text("New job")
    expect(dialog).to_contain_text("Errors")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    for key, heading in (("j", "Jobs"), ("e", "Errors"), ("o", "Overview")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", name=heading, exact=True, level=1)).to_be_visible()


def test_the_chosen_theme_is_kept(page: Page, site: Site):
    show(page, "/")
    ground = "getComputedStyle(document.body).backgroundColor"
    button = page.get_by_role("button", name="Theme:")
    button.click()
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    light = page.evaluate(ground)
    button.click()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    dark = page.evaluate(ground)
    assert light != dark
    page.reload()
    settled(page)
    assert page.evaluate(ground) == dark
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()


def test_the_choice_of_local_time_or_utc_is_kept(chromium: Browser, live: Site, failed: str):
    context = chromium.new_context(base_url=live.url, viewport=WIDE, timezone_id="Asia/Kolkata")  # type: ignore[arg-type]
    page = live.enter(context, live.token)
    show(page, f"/jobs/{failed}")
    [attempt] = live.app.jobs.attempts(failed)
    assert attempt.started_at is not None
    theirs = attempt.started_at.astimezone(ZoneInfo("Asia/Kolkata"))
    told = page.locator(".attempt-body time")
    expect(told).to_contain_text(f"{theirs:%H:%M:%S}")
    page.get_by_role("button", name="Times: local").click()
    expect(told).to_contain_text(f"{attempt.started_at:%H:%M:%S}")
    page.reload()
    settled(page)
    expect(told).to_contain_text(f"{attempt.started_at:%H:%M:%S}")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Command").fill("times local")
    page.keyboard.press("Enter")
    expect(told).to_contain_text(f"{theirs:%H:%M:%S}")
    context.close()


def test_reduced_motion_disables_animations(page: Page, site: Site):
    """A short transition would be one of every property of every element."""
    show(page, "/")
    change = """(theme) => {
      document.documentElement.dataset.theme = theme;
      return [getComputedStyle(document.body).backgroundColor, document.getAnimations().length];
    }"""
    light, moving = page.evaluate(change, "light")
    assert moving == 0
    dark, moving = page.evaluate(change, "dark")
    assert (moving, light == dark) == (0, False)


def test_an_unknown_address_shows_not_found(page: Page, site: Site):
    show(page, "/nowhere/at/all")
    expect(page.get_by_text("There is no such page")).to_be_visible()
    show(page, "/jobs/01a1e404-0000-7000-8000-000000000000")
    expect(page.get_by_text("There is no such job")).to_be_visible()


@pytest.fixture
def failed(live: Site) -> str:
    job = live.app.enqueue("crash", {"reason": "seen by all"})
    finish(live, job)
    return job.id


def test_a_viewer_sees_no_action(context, live: Site, failed: str):
    _, secret = live.access.create("looks", "viewer")
    page = live.enter(context, secret)
    sees_all_and_does_nothing(page, failed)
    expect(page.get_by_text("viewer")).to_be_visible()
    page.keyboard.press("n")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_have_count(1)


def test_read_only_removes_all_actions(chromium: Browser, live: Site, failed: str):
    server = dashboard(live.app, hosts=["127.0.0.1"], read_only=True)
    with served(server, server.state.web.close) as url:
        context = chromium.new_context(base_url=url, viewport=WIDE)  # type: ignore[arg-type]
        page = live.enter(context, live.token, url)
        sees_all_and_does_nothing(page, failed)
        expect(page.get_by_text("read only")).to_be_visible()
        context.close()


def sees_all_and_does_nothing(page: Page, failed: str) -> None:
    for path in ("/", "/jobs", "/errors", f"/jobs/{failed}"):
        show(page, path)
        for name in ACTIONS:
            expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    expect(page.locator(".attempt")).to_contain_text("seen by all")
    page.get_by_role("button", name="More").click()
    for name in ("Edit", "Duplicate with changes", "Delete"):
        expect(page.get_by_role("menuitem", name=name)).to_have_count(0)
    page.keyboard.press("Escape")
    show(page, "/jobs")
    row(page, failed).get_by_role("checkbox").check()
    for name in ("Retry", "Cancel", "Delete"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)


def test_the_dashboard_works_mounted_in_another_application(
    chromium: Browser, live: Site, failed: str
):
    """Mounted below a path of another server: pages, links, requests and the stream stay below it."""
    inner = dashboard(live.app, hosts=["127.0.0.1"])
    outer = Starlette(routes=[Mount("/tools/jobs", app=inner)])
    with served(outer, inner.state.web.close) as url:
        base = f"{url}/tools/jobs"
        context = chromium.new_context(base_url=base, viewport=WIDE)  # type: ignore[arg-type]
        page = live.watch(context.new_page())
        strangers: list[str] = []
        page.on(
            "request",
            lambda one: None if one.url.startswith(base) else strangers.append(one.url),
        )
        page.goto(base + "/")
        page.get_by_label("token").fill(live.token)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.get_by_role("link", name="Jobs", exact=True).click()
        expect(page).to_have_url(f"{base}/jobs")
        row(page, failed).locator("a[data-row]").click()
        expect(page).to_have_url(f"{base}/jobs/{failed}")
        expect(page.locator(".attempt")).to_contain_text("seen by all")
        page.reload()
        expect(page.locator(".attempt")).to_contain_text("seen by all")
        until(page, "window.holdfastIdle")
        assert strangers == []
        context.close()


def test_an_invitation_link_works_once_and_is_removed_from_the_address(context, live: Site):
    secret = live.server.state.web.invitations.make()
    page = live.watch(context.new_page())
    page.goto(f"/#token={secret}")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert secret not in page.evaluate("() => location.href")
    context.clear_cookies()
    page.goto("about:blank")
    page.goto(f"/#token={secret}")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


HIDE = """(hidden) => {
  Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
  document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_a_hidden_tab_sends_no_requests_and_catches_up_when_shown(page: Page, live: Site):
    gone: list[str] = []
    page.on("requestfailed", lambda one: gone.append(one.url))
    show(page, "/jobs")
    expect(page.get_by_role("button", name="Live updates: Live")).to_be_visible()
    page.evaluate(HIDE, True)
    expect(page.get_by_role("button", name="Live updates: Hidden")).to_be_visible()
    settled(page)
    before = page.evaluate("window.holdfastRequests")
    job = live.app.enqueue("add", {"a": 1})
    finish(live, job)
    assert any("/events" in url for url in gone)
    assert page.evaluate("window.holdfastRequests") == before
    expect(row(page, job.id)).to_have_count(0)
    page.evaluate(HIDE, False)
    expect(row(page, job.id)).to_contain_text("completed")
    expect(page.get_by_role("button", name="Live updates: Live")).to_be_visible()


def test_live_updates_are_paused_and_resumed(page: Page, live: Site):
    show(page, "/jobs")
    expect(page.get_by_role("button", name="Live updates: Live")).to_be_visible()
    page.get_by_role("button", name="Live updates").click()
    expect(page.get_by_role("button", name="Live updates: Paused")).to_be_visible()
    job = live.app.enqueue("add", {"a": 1})
    finish(live, job)
    expect(row(page, job.id)).to_have_count(0)
    page.get_by_role("button", name="Live updates").click()
    expect(row(page, job.id)).to_contain_text("completed")
