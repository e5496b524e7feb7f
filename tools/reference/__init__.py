"""The reference pages of the documentation, made from the code, so that they agree with it.

python -m tools.reference FOLDER    writes the pages into the folder
"""

from collections.abc import Callable
from pathlib import Path

from tools.reference import api, command, configuration, events, rest, schema, states

SINGLE: dict[str, Callable[[], str]] = {
    "cli.md": command.page,
    "rest.md": rest.page,
    "events.md": events.page,
    "configuration.md": configuration.page,
    "schema.md": schema.page,
    "states.md": states.page,
}


def make() -> dict[str, str]:
    """Return every page by its name."""
    return {**api.pages(), **{name: page() for name, page in SINGLE.items()}}


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in make().items():
        (folder / name).write_text(text, encoding="utf-8")
