"""Nothing that people write becomes part of a page: it is text wherever it is shown."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Request, expect

from holdfast.web import dashboard
from tests.browser.application import GATES
from tests.browser.shared_site import database, live, nothing_left_behind, site
from tests.browser.site import WIDE, Site, finish, new, served, settled, show, until
from tests.browser.xss_payloads import ALL, as_seen

__all__ = ["database", "live", "nothing_left_behind", "site"]

_WATCH = """
window.__reports = [];
document.addEventListener('securitypolicyviolation',
  (event) => window.__reports.push(event.violatedDirective));
"""


def squeezed(text: str) -> str:
    return " ".join(text.split())


class Guarded:
    """A page of which everything is reported that it must not do."""

    def __init__(self, page: Page, context: BrowserContext, origin: str) -> None:
        self.page, self.origin = page, origin
        self.wrong: list[str] = []
        page.on("dialog", self._spoke)
        context.on("page", lambda other: self.wrong.append(f"a window: {other.url}"))
        page.on("request", self._asked)

    def _spoke(self, dialog: Dialog) -> None:
        self.wrong.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.origin, "data:image")):
            self.wrong.append(f"a request: {request.url}")

    def check(self, where: str, texts: tuple[str, ...] = ()) -> None:
        """Nothing ran, and every text is there as a text."""
        settled(self.page)
        seen = squeezed(self.page.evaluate("document.body.innerText"))
        missing = [text for text in texts if squeezed(as_seen(text)) not in seen]
        assert missing == [], f"{where}: not shown as text"
        assert self.page.evaluate("window.__pwned") is None, where
        assert self.page.evaluate("window.__reports") == [], where
        assert self.page.evaluate("({}).polluted") is None, where
        assert self.page.evaluate("document.querySelectorAll('iframe, object, embed').length") == 0
        assert self.wrong == [], where


@pytest.fixture
def guarded(chromium: Browser, live: Site) -> Iterator[Guarded]:
    """As a user whose name is a payload, on a site whose title is another."""
    _, secret = live.access.create(ALL[0], "admin")
    server = dashboard(live.app, hosts=["127.0.0.1"], title=ALL[9])
    with served(server, server.state.web.close) as url:
        context = chromium.new_context(base_url=url, viewport=WIDE)  # type: ignore[arg-type]
        context.set_default_timeout(15_000)
        context.add_init_script(_WATCH)
        page = live.enter(context, secret, url)
        yield Guarded(page, context, url)
        context.close()
    problems, live.problems[:] = list(live.problems), []
    assert problems == []


def test_there_are_many_payloads():
    assert len(set(ALL)) >= 60


def test_payloads_are_inert_in_lists(guarded: Guarded, live: Site):
    """Keys, entities and errors of jobs; groups of errors; the newest errors of the overview."""
    queue = f"q-{new()}"
    jobs = [
        live.app.enqueue(
            "crash", {"reason": one}, key=f"{n} {one}", entity=("it", one), queue=queue
        )
        for n, one in enumerate(ALL)
    ]
    with live.app.worker(queues=f"{queue}=4", grace=5):
        finish(live, *jobs)
    page = guarded.page
    show(page, f"/jobs?q=queue%3A{queue}")
    page.get_by_role("button", name="Load more").click()
    expect(page.locator("tr[data-id]")).to_have_count(len(ALL))
    guarded.check("jobs", (*ALL, ALL[9]))
    page.get_by_label("Search jobs").focus()
    page.locator("tr[data-id]").first.hover()
    show(page, "/errors")
    guarded.check("errors")
    assert "<script>" in page.locator(".groups").inner_text()
    show(page, "/")
    guarded.check("overview", (ALL[0], ALL[9]))
    show(page, "/activity?tab=audit")
    guarded.check("audit", (ALL[0],))


def test_payloads_are_inert_on_a_jobs_page(guarded: Guarded, live: Site):
    """Keys and values of arguments and results at any depth; errors, tracebacks and messages."""
    gate = new()
    value: dict[str, Any] = {one: one for one in ALL}
    value["__proto__"] = {"polluted": "1"}
    tree = {"value": {"flat": value, "list": list(ALL)}}
    done = live.app.enqueue("echo", tree, key=ALL[9], idempotency_key=new() + ALL[9])
    failed = live.app.enqueue("crash", {"reason": "\n".join(ALL)})
    running = [
        live.app.enqueue("render", {"title": " ".join(ALL[n : n + 8]), "gate": gate})
        for n in range(0, 24, 8)
    ]
    finish(live, done, failed)
    page = guarded.page
    show(page, f"/jobs/{done.id}")
    while (closed := page.locator(".json-toggle[aria-expanded=false]")).count():
        closed.first.click()
    guarded.check("arguments and result", ALL)
    show(page, f"/jobs/{failed.id}")
    guarded.check("error and traceback", ALL)
    for n, job in enumerate(running):
        show(page, f"/jobs/{job.id}")
        expect(page.get_by_role("progressbar", name="Progress")).to_be_visible()
        guarded.check("message", ALL[8 * n : 8 * n + 4])
    show(page, "/jobs?status=running")
    guarded.check("messages")
    show(page, "/workers")
    guarded.check("workers")
    GATES[gate].set()


def test_payloads_are_inert_in_names_of_tokens(guarded: Guarded, live: Site):
    names = [one[:100] for one in ALL if one[:100].isprintable()]
    for name in names:
        live.access.create(name, "viewer")
    show(guarded.page, "/system")
    expect(guarded.page.get_by_text(names[-1], exact=True).first).to_be_visible()
    guarded.check("system", tuple(names))


def test_payloads_are_inert_in_the_address(guarded: Guarded, live: Site):
    page, texts = guarded.page, iter(ALL[::4])
    for path in (
        *("/jobs?q={}&type={}&key={}&worker={}", "/jobs/{}", "/errors?type={}&status={}&group={}"),
        *("/workflows/{}", "/queues/{}", "/tasks/{}?range={}", "/{}", "/schedules?after={}"),
        "/activity?tab={}&kinds={}&type={}#token={}",
    ):
        written = quote(next(texts), safe="")
        page.goto(path.replace("{}", written))
        until(page, "document.querySelector('#main h1')")
        guarded.check(path)
    show(page, "/jobs")
    text = next(texts)
    page.get_by_label("Search jobs").fill(text)
    page.keyboard.press("Enter")
    until(page, "location.search.length > 3")
    guarded.check("search")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Search or jump to").click()
    page.keyboard.type(next(texts))
    guarded.check("palette")
