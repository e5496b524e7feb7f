"""A served dashboard with its application, and helpers that look at its pages."""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page

from holdfast import Holdfast, Job
from holdfast.access import Access
from holdfast.errors import JobFailed
from holdfast.web import dashboard
from tests.browser.application import make_application
from tests.conftest import Database

WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 380, "height": 780}
_QUIET = ("net::ERR_ABORTED", "net::ERR_INCOMPLETE_CHUNKED_ENCODING")  # a page left its stream
_REFUSED = "the server responded with a status of 4"  # some tests send forbidden requests
_AXE = Path(__file__).parent / "vendor" / "axe.js"


@dataclass
class Site:
    app: Holdfast
    url: str
    token: str
    access: Access
    server: Any
    problems: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> Page:
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.on("console", lambda message: self._heard(message))
        page.on("response", lambda answer: self._answered(answer.status, answer.url))
        return page

    def enter(self, context: BrowserContext, token: str, base: str | None = None) -> Page:
        """Log in and return a watched page."""
        at = base or self.url
        answer = context.request.post(f"{at}/api/v1/session", data={"token": token})
        assert answer.ok, answer.text()
        return self.watch(context.new_page())

    def _heard(self, message: ConsoleMessage) -> None:
        text, url = message.text, message.location.get("url", "")
        if message.type != "error" or any(quiet in text for quiet in (*_QUIET, _REFUSED)):
            return
        if not url.endswith("/health"):  # an unhealthy system answers 503
            self.problems.append(f"console: {text} ({url})")

    def _answered(self, status: int, url: str) -> None:
        if status >= 500:
            self.problems.append(f"{status}: {url}")


@contextlib.contextmanager
def served(application: Any, close: Callable[[], None]) -> Iterator[str]:
    """An ASGI application on a free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        config = uvicorn.Config(
            application, log_level="warning", lifespan="off", timeout_graceful_shutdown=2
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            close()
            server.should_exit = True
            thread.join(10)


@contextlib.contextmanager
def make_site(database: Database, **options: Any) -> Iterator[Site]:
    app = make_application(database)
    access = Access(app)
    token = access.first_token()
    assert token is not None
    server = dashboard(app, hosts=["127.0.0.1"], **options)
    with served(server, server.state.web.close) as url:
        yield Site(app, url, token, access, server)


# helpers for tests


def until(page: Page, condition: str) -> None:
    """Wait until a JavaScript expression is true. (Playwright's own way evaluates text again and again,
    which the page's policy forbids.)"""
    page.evaluate(
        """new Promise((yes, no) => {
          const end = performance.now() + 20000;
          const look = () => {
            if (CONDITION) yes();
            else if (performance.now() > end) no(new Error(`never: ${TEXT}`));
            else setTimeout(look, 20);
          };
          look();
        })""".replace("CONDITION", condition).replace("TEXT", json.dumps(condition))
    )


def settled(page: Page) -> None:
    """Wait until no request is in flight and the last answer is drawn."""
    until(page, "window.holdfastIdle === true")


def new() -> str:
    """Return a unique name."""
    return uuid4().hex[:10]


def finish(site: Site, *jobs: Job) -> None:
    """Wait until the jobs have ended, successfully or not."""
    for job in jobs:
        with contextlib.suppress(JobFailed):
            site.app.jobs.wait_for(job.id, timeout=20)


def show(page: Page, path: str) -> None:
    page.goto(path)
    page.locator("#main h1").first.wait_for(state="attached")
    settled(page)


def navigate(page: Page, path: str) -> None:
    """Navigate like a link, without reloading."""
    page.evaluate(
        """async (path) => {
          history.pushState({}, '', path);
          dispatchEvent(new PopStateEvent('popstate'));
          const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
          await frame();
          await frame();
        }""",
        path,
    )
    page.locator("#main h1").first.wait_for(state="attached")
    settled(page)


def row(page: Page, id: str) -> Locator:
    return page.locator(f'tr[data-id="{id}"]')


def pick(page: Page, button: str | re.Pattern[str], item: str) -> None:
    """Choose an entry of a menu."""
    page.get_by_role("button", name=button).click()
    page.get_by_role("menuitem", name=item).click()


def violations(page: Page) -> list[str]:
    """Return the accessibility violations that axe finds: the rule and the first places."""
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(_AXE.read_text())
    found = page.evaluate(
        "axe.run(document, {resultTypes: ['violations'], preload: false})"
        ".then((report) => report.violations.map((one) => ({rule: one.id, places:"
        " one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160) + ' ' + node.failureSummary)})))"
    )
    return [f"{one['rule']}: {json.dumps(one['places'])}" for one in found]


def overflow(page: Page) -> str | None:
    """Return what makes the page wider than its window, or None."""
    found: str | None = page.evaluate(
        """() => {
          const wide = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= wide) return null;
          const out = [...document.querySelectorAll('#app *')]
            .filter((one) => one.getBoundingClientRect().right > wide + 1).slice(0, 3)
            .map((one) => one.outerHTML.slice(0, 120));
          return `${document.documentElement.scrollWidth} px: ${out.join(' | ')}`;
        }"""
    )
    return found
