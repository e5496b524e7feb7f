"""The site builds without a warning, every link has a target, and the site needs no network."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify

from tests.docs.pages import DOCS, PAGES, ROOT, links, name_of
from tools import site


class Page(HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.hrefs: set[str] = set()
        self.fetched: set[str] = set()
        self.ids: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        if "id" in given:
            self.ids.add(given["id"])
        if "href" in given:
            (self.hrefs if tag == "a" else self.fetched).add(given["href"])
        if "src" in given:
            self.fetched.add(given["src"])


@pytest.fixture(scope="session")
def pages(built: Path) -> dict[Path, Page]:
    return {path.resolve(): Page(path) for path in built.rglob("*.html")}


def test_every_page_is_built(built: Path, staged: Path) -> None:
    for page in (staged / "docs").rglob("*.md"):
        name = page.relative_to(staged / "docs").with_suffix(".html").as_posix()
        name = re.sub(r"README\.html$", "index.html", name)
        assert (built / name).exists(), name


def test_every_page_is_in_the_navigation(staged: Path) -> None:
    navigation = (staged / site.CONFIGURATION).read_text()
    found = [
        page.relative_to(staged / "docs").as_posix() for page in (staged / "docs").rglob("*.md")
    ]
    assert [page for page in found if f'"{page}"' not in navigation] == []


def test_every_link_of_the_site_has_a_target(pages: dict[Path, Page]) -> None:
    wrong = []
    for page in pages.values():
        if page.path.name == "404.html":  # its links are relative to the root of the server
            continue
        for target in page.hrefs | page.fetched:
            if re.match(r"[a-z]+:", target):
                continue
            address, _, anchor = target.partition("#")
            path = (page.path.parent / address).resolve() if address else page.path.resolve()
            path = path / "index.html" if path.is_dir() else path
            if not path.exists() or (
                anchor and path in pages and anchor not in pages[path].ids and anchor != "__skip"
            ):
                wrong.append(f"{page.path.name}: {target}")
    assert wrong == []


def test_the_site_loads_nothing_from_other_hosts(pages: dict[Path, Page], built: Path) -> None:
    for page in pages.values():
        outside = [one for one in page.fetched if re.match(r"(https?:)?//", one)]
        assert outside == [], page.path.name
    for style in built.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text()), style.name


def test_tables_and_lists_are_rendered(built: Path, staged: Path) -> None:
    """The builder needs blank lines around them, which the source pages leave out."""
    for page in (staged / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        name = re.sub(
            r"README$", "index", page.relative_to(staged / "docs").with_suffix("").as_posix()
        )
        html = (built / f"{name}.html").read_text()
        wanted = len(re.findall(r"^\|(?: *:?---+:? *\|)+$", text, re.MULTILINE))
        assert html.count("<table>") == wanted, page
        assert not re.search(r"<p>\s*(\||- )", html), page
        assert not re.search(r"<td>.*?\\\|", html), page
        assert not re.search(r"<p>[^<]*\n(\||- )", html), page


@pytest.mark.parametrize(
    "page",
    [
        *PAGES,
        *(
            ROOT / f"{name}.md"
            for name in ("ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY")
        ),
    ],
    ids=name_of,
)
def test_links_of_a_source_page_have_a_target(page: Path, staged: Path) -> None:
    for target in links(page):
        address, _, anchor = target.partition("#")
        path = (page.parent / address).resolve() if address else page
        if DOCS in path.parents and not path.exists():
            path = staged / path.relative_to(ROOT)  # a page that is made from the code
        assert path.exists(), f"{name_of(page)}: {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{name_of(page)}: {target}: no such heading"


def anchors(page: Path) -> set[str]:
    found = set()
    for title in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE):
        given = re.search(r"\{ #(\S+) \}$", title)
        found.add(given[1] if given else slugify(re.sub(r"[`*]|\]\([^)]*\)|\[", "", title), "-"))
    return found


def test_a_broken_link_fails_the_build(staged: Path, tmp_path: Path) -> None:
    shutil.copytree(staged, tmp_path / "staged", ignore=shutil.ignore_patterns("site", ".cache"))
    page = tmp_path / "staged" / "docs" / "quickstart.md"
    page.write_text(page.read_text() + "\n[nowhere](nowhere.md)\n")
    with pytest.raises(SystemExit, match="nowhere"):
        site.build(tmp_path / "staged", tmp_path / "site")
