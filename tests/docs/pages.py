"""The pages of the documentation: their code, prose and links."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the code blocks with one of these languages. (A block with a title, or `py`, is an excerpt
    that does not run.)"""
    return [text for info, text in _BLOCK.findall(page.read_text("utf-8")) if info in languages]


def prose(page: Path) -> str:
    """Return the text of a page without its code blocks."""
    return _BLOCK.sub("", page.read_text("utf-8"))


def inline(page: Path) -> Iterator[str]:
    """Yield the code within the sentences of a page."""
    yield from _INLINE.findall(prose(page))


def links(page: Path) -> Iterator[str]:
    """Yield the targets of the links of a page, without those to other sites."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(
        r'(?:src|srcset)="([^"]+)"', text
    ):
        if not re.match(r"[a-z]+:", target):
            yield target
