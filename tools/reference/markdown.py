"""Markdown, written so that both the site and a code host read it the same way."""

import re
from collections.abc import Iterable, Sequence

_ANGLE = re.compile(r"(`[^`]*`)|<")
_BAR = re.compile(r"(`[^`]*`)|\|")


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def cell(text: str) -> str:
    """On one line. A bar ends the cell, unless it is in code."""
    return _BAR.sub(lambda match: match[1] or "\\|", " ".join(text.split()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """With a blank line around it; nothing where there are no rows."""
    found = [[cell(one) for one in row] for row in rows]
    if not found:
        return ""
    lines = [head, ["---"] * len(head), *found]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def heading(level: int, title: str, anchor: str) -> str:
    return f"\n{'#' * level} {title} {{ #{anchor} }}\n\n"


def block(text: str, language: str = "py") -> str:
    """Not `python`: what is marked so is run by the tests, and a signature cannot be."""
    return f"\n```{language}\n{text}\n```\n\n"


def prose(text: str) -> str:
    """A docstring: its paragraphs, its examples as code, and no HTML by accident."""
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
    """With a capital, as a cell that stands alone has; names in code stay as they are."""
    text = text.strip()
    return text[:1].upper() + text[1:] if text[:1].islower() else text
