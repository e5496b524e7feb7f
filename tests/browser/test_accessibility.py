"""Accessibility: no violation found by axe and no horizontal scrolling, light and dark, wide and
narrow, with dialogs, the drawer, the palette and menus open."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.sample_data import SampleData, create_sample_data, release
from tests.browser.shared_site import embedded as database
from tests.browser.shared_site import live, nothing_left_behind, site
from tests.browser.site import NARROW, WIDE, Site, navigate, overflow, settled, show, violations

__all__ = ["database", "live", "nothing_left_behind", "site"]

NAMES = tuple(SampleData("", "", "", "", "", "").paths)


@pytest.fixture(scope="module")
def sample(live: Site) -> Iterator[SampleData]:
    sample = create_sample_data(live)
    yield sample
    release(sample)


def looks(chromium: Browser, site: Site, scheme: str, size: dict[str, int]) -> Iterator[Page]:
    context = chromium.new_context(
        base_url=site.url,
        viewport=size,
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    context.set_default_timeout(15_000)
    yield site.enter(context, site.token)
    context.close()
    problems, site.problems[:] = list(site.problems), []
    assert problems == []


VARIANTS = [("light", WIDE), ("dark", WIDE), ("light", NARROW), ("dark", NARROW)]


@pytest.fixture(params=VARIANTS, ids=["light", "dark", "narrow", "narrow-dark"])
def look(request: pytest.FixtureRequest, chromium: Browser, live: Site) -> Iterator[Page]:
    yield from looks(chromium, live, *request.param)


def test_every_page_has_no_accessibility_violations(look: Page, sample: SampleData):
    wrong = []
    show(look, "/jobs")
    for name in NAMES:
        navigate(look, sample.paths[name])
        wrong += [f"{name}: {one}" for one in violations(look)]
        if (wide := overflow(look)) is not None:
            wrong.append(f"{name} scrolls sideways: {wide}")
    assert wrong == []


def test_dialogs_and_menus_have_no_accessibility_violations(look: Page, sample: SampleData):
    wrong: list[str] = []

    def check(name: str) -> None:
        settled(look)
        wrong.extend(f"{name}: {one}" for one in violations(look))
        if (wide := overflow(look)) is not None:
            wrong.append(f"{name} scrolls sideways: {wide}")

    show(look, f"/jobs/{sample.waiting}")
    look.get_by_role("button", name="More").click()
    expect(look.get_by_role("menu")).to_be_visible()
    check("menu")
    look.get_by_role("menuitem", name="Edit").click()
    check("edit")
    look.keyboard.press("Escape")
    look.keyboard.press("Control+k")
    look.keyboard.type("add")
    expect(look.get_by_role("option").first).to_be_visible()
    check("palette")
    look.keyboard.press("Escape")
    look.keyboard.press("?")
    check("shortcuts")
    look.keyboard.press("Escape")
    look.keyboard.press("n")
    look.get_by_label("Task").select_option("order")
    look.get_by_role("dialog").get_by_role("button", name="Enqueue").click()
    check("drawer")
    look.keyboard.press("Escape")
    show(look, "/jobs")
    look.get_by_label("Select all rows").check()
    look.get_by_role("button", name="Delete", exact=True).click()
    expect(look.get_by_role("dialog")).to_be_visible()
    check("question")
    look.keyboard.press("Escape")
    look.get_by_label("Search jobs").focus()
    look.keyboard.type("s")
    expect(look.get_by_role("option").first).to_be_visible()
    check("completions")
    assert wrong == []


def test_the_login_page_has_no_accessibility_violations(chromium: Browser, live: Site):
    for scheme, size in VARIANTS:
        context = chromium.new_context(base_url=live.url, viewport=size, color_scheme=scheme)
        page = live.watch(context.new_page())
        page.goto("/")
        expect(page.get_by_label("token")).to_be_visible()
        assert violations(page) == []
        assert overflow(page) is None
        context.close()
