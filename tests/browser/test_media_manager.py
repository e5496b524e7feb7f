"""The page of the media manager, in a real browser: it follows its own job through a signed link."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

from examples.harness import Harness
from examples.media_manager.fakes import Limited
from examples.media_manager.testbed import KEY, MediaTestbed, open_testbed
from tests.browser.site import NARROW, WIDE, overflow, until, violations

TITLES = (
    "Held (1972)",
    "Absent (1974)",
    "Limited (1975)",
    "Killed (1979)",
    "<b>Bold<",
    "Same (1980)",
)
ROW = "li[data-title='{}']"


@pytest.fixture(scope="module")
def testbed() -> Iterator[MediaTestbed]:
    with Harness("media-manager") as harness:
        url = f"sqlite:///{harness.folder}/media.db"
        with open_testbed(harness, url, concurrency=4) as testbed:
            testbed.post("/api/v1/libraries", {"path": str(testbed.library("films", *TITLES))}, 201)
            known = lambda: len(testbed.get("/api/v1/media")) == len(TITLES)  # noqa: E731
            harness.until("the library is known", known)
            yield testbed


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """As in other tests, but once for the module: its testbed serves all of its tests."""
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("holdfast")]
    assert left == [], f"threads left running: {left}"


@pytest.fixture
def problems() -> list[str]:
    """What the page should not have: exceptions, and errors on the console."""
    return []


@pytest.fixture
def page(chromium: Browser, testbed: MediaTestbed, problems: list[str]) -> Iterator[Page]:
    """The library, opened with the key."""
    yield from opened(chromium, testbed, problems, viewport=WIDE)


def opened(
    chromium: Browser, testbed: MediaTestbed, problems: list[str], **options: Any
) -> Iterator[Page]:
    context = chromium.new_context(base_url=str(testbed.client.base_url), **options)
    context.set_default_timeout(15_000)
    page = context.new_page()

    def heard(message: ConsoleMessage) -> None:
        if message.type == "error" and "status of 401" not in message.text:  # the page asks first
            problems.append(message.text)

    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", heard)
    page.goto("/library/")
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Open").click()
    page.locator("#media li").first.wait_for()
    yield page
    context.close()
    assert problems == []


def row(page: Page, title: str) -> Locator:
    return page.locator(ROW.format(title))


def enrich(page: Page, title: str) -> Locator:
    page.get_by_role("button", name=f"Enrich: {title}").click()
    return row(page, title)


def test_the_progress_bar_moves_and_ends_completed(testbed: MediaTestbed, page: Page) -> None:
    gate = testbed.provider.hold("Held")
    item = enrich(page, "Held")
    expect(item).to_have_attribute("data-status", "running")
    expect(item.locator(".message")).to_have_text("Downloading selected assets")
    bar = "document.querySelector(\"li[data-title='Held'] progress\")"
    until(page, f"{bar}.value === 50")
    expect(item.get_by_role("button")).to_be_disabled()
    gate.open()
    expect(item).to_have_attribute("data-status", "completed")
    expect(item.locator(".message")).to_have_text("Done: 5 assets")
    assert page.evaluate(f"{bar}.value") == 100
    expect(item.locator(".state")).to_have_text("movie, enriched")
    expect(item.get_by_role("button")).to_be_enabled()


def test_a_failure_is_shown_and_can_be_retried(testbed: MediaTestbed, page: Page) -> None:
    testbed.provider.script("Absent", 404)
    item = enrich(page, "Absent")
    expect(item).to_have_attribute("data-status", "failed")
    expect(item.locator(".message")).to_contain_text(
        "TMDB has no movie 'Absent': content not found"
    )
    expect(item.locator(".message")).to_contain_text("after 1 of 3 attempts")
    expect(item.get_by_role("button")).to_have_text("Try again")
    item.get_by_role("button").click()
    expect(item).to_have_attribute("data-status", "completed")


def test_a_waiting_retry_is_shown(testbed: MediaTestbed, page: Page) -> None:
    testbed.provider.script("Limited", Limited(2))
    item = enrich(page, "Limited")
    expect(item).to_have_attribute("data-status", "retrying")
    expect(item.locator(".message")).to_contain_text("again")
    expect(item).to_have_attribute("data-status", "completed")


def test_the_page_reconnects_after_the_server_was_killed(
    testbed: MediaTestbed, page: Page, problems: list[str]
) -> None:
    gate = testbed.provider.hold("Killed")
    item = enrich(page, "Killed")
    expect(item.locator(".message")).to_have_text("Downloading selected assets")
    testbed.kill()
    gate.open()
    testbed.start()
    expect(item).to_have_attribute("data-status", "completed")
    problems[:] = [one for one in problems if "ERR_CONNECTION_REFUSED" not in one]


def test_a_wrong_key_is_reported(testbed: MediaTestbed, chromium: Browser) -> None:
    page = chromium.new_page(base_url=str(testbed.client.base_url))
    page.goto("/library/")
    expect(page.get_by_label("API key")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_text("")
    page.get_by_label("API key").fill("guessed")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("alert")).to_have_text("This is not the key.")
    expect(page.locator("#media li")).to_have_count(0)
    page.close()


def test_a_title_is_drawn_as_text(page: Page) -> None:
    expect(row(page, "<b>Bold<").locator("h2")).to_have_text("<b>Bold<")
    assert page.locator("#media b").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_page_has_no_accessibility_violations(
    chromium: Browser,
    testbed: MediaTestbed,
    problems: list[str],
    scheme: str,
    viewport: dict[str, int],
) -> None:
    for page in opened(chromium, testbed, problems, color_scheme=scheme, viewport=viewport):
        item = enrich(page, "Same")
        expect(item).to_have_attribute("data-status", "completed")
        assert violations(page) == []
        assert overflow(page) is None
