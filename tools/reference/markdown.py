"""Markdown that the site and a code host render alike."""

import re
from collections.abc import Iterable, Sequence

_ANGLE = re.compile(r"(`[^`]*`)|<")
_BAR = re.compile(r"(`[^`]*`)|\|")


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def cell(text: str) -> str:
    """Return the text of a table cell, on one line. Bars are escaped, except in code."""
    return _BAR.sub(lambda match: match[1] or "\\|", " ".join(text.split()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with blank lines around it; an empty text if there are no rows."""
    found = [[cell(one) for one in row] for row in rows]
    if not found:
        return ""
    lines = [head, ["---"] * len(head), *found]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def heading(level: int, title: str, anchor: str) -> str:
    return f"\n{'#' * level} {title} {{ #{anchor} }}\n\n"


def block(text: str, language: str = "py") -> str:
    """Return a code block. (Not marked `python`: the tests run such blocks, and a signature cannot
    run.)"""
    return f"\n```{language}\n{text}\n```\n\n"


def prose(text: str) -> str:
    """Return a docstring as Markdown: paragraphs, examples as code blocks, no HTML."""
    parts = []
    for part in re.split(r"\n\s*\n", text.strip()):
        lines = part.splitlines()
        if lines and lines[0].lstrip().startswith(">>>"):
            parts.append(block("\n".join(line.lstrip().removeprefix(">>> ") for line in lines)))
        else:
            parts.append(plain(" ".join(line.strip() for line in lines)) + "\n\n")
    return "".join(parts)


def plain(text: str) -> str:
    return _ANGLE.sub(lambda match: match[1] or "&lt;", text)


def sentence(text: str) -> str:
    """Return the text with a capital first letter, unless it begins with code."""
    text = text.strip()
    return text[:1].upper() + text[1:] if text[:1].islower() else text
