"""The dashboard opens, lets in who has a token, and shows jobs."""

from playwright.sync_api import Page, expect

from tests.browser.site import Site


def test_who_is_not_known_is_asked_for_a_token(context, site: Site):
    page = site.watch(context.new_page())
    page.goto("/")
    page.get_by_label("Token").fill("hf_" + "x" * 43)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Token").fill(site.token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_an_invitation_opens_once_and_leaves_the_address(context, site: Site):
    secret = site.server.state.web.invitations.make()
    page = site.watch(context.new_page())
    page.goto(f"/#token={secret}")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert secret not in page.evaluate("() => location.href")
    context.clear_cookies()
    page.goto("about:blank")
    page.goto(f"/#token={secret}")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_jobs_are_listed(page: Page, site: Site):
    with site.app.worker():
        job = site.app.enqueue("add", {"a": 40})
        site.app.jobs.wait_for(job.id, timeout=20)
        page.goto("/jobs")
        expect(page.get_by_role("link", name="add")).to_be_visible()
