"""Markdown, written so that both the site and a code host read it the same way."""

import re
from collections.abc import Iterable, Sequence


def code(text: object) -> str:
    """In a table a bar ends the cell, also inside of code."""
    return f"`{str(text).replace('|', BAR)}`" if str(text) else ""


BAR = "\\|"
_ANGLE = re.compile(r"(`[^`]*`)|<")


def cell(text: str) -> str:
    """On one line; a bar that is not escaped yet would end the cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


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
