"""Every command in the documentation exists, with its options and arguments."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from holdfast.cli.root import cli
from tests.docs.pages import DOCS, PAGES, blocks, inline, name_of

SHELL = ("sh", "bash", "shell", "console", "text", "dockerfile", "ini", "yaml", "yml")
ROOT = typer.main.get_command(cli)
_CALL = re.compile(r"(?:^|[\s/;&|(])(?<!schema )(holdfast +(?:--?h|--version|[a-z]).*)")


def calls(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of `holdfast`, as a shell would pass them."""
    for line in text.replace("\\\n", " ").splitlines():
        found = _CALL.search(line)
        if found is None or line.lstrip().startswith("#"):
            continue
        words = shlex.split(found[1], comments=True)
        end = [at for at, word in enumerate(words) if word in ("|", "||", "&&", ">", "&", ";")]
        yield words[1 : end[0] if end else None]


def parse(words: list[str]) -> None:
    """Parse a call of the command without running it. Raises for an invalid one."""
    command: Any = ROOT
    context = None
    while hasattr(command, "commands"):
        if not words or words[0] not in command.commands:
            if words and words[0] in ("--help", "-h", "--version"):
                return
            raise AssertionError(f"there is no verb {' '.join(words) or '(none)'}")
        command, *words = command.commands[words[0]], *words[1:]
    if "--help" not in words:
        context = command.make_context("holdfast", list(words))
        context.close()


COMMANDS = [
    (page, words)
    for page in PAGES
    for language in SHELL
    for block in blocks(page, language)
    for words in calls(block)
]


@pytest.mark.parametrize(
    ("page", "words"),
    COMMANDS,
    ids=[f"{name_of(page)}: {' '.join(words)}" for page, words in COMMANDS],
)
def test_every_shown_command_is_valid(
    page: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_APP", raising=False)
    try:
        parse(words)
    except Exception as problem:
        raise AssertionError(f"{name_of(page)}: holdfast {' '.join(words)}: {problem}") from None


def test_an_invalid_command_is_noticed() -> None:
    for words in (["jobs", "lsit"], ["worker", "a:b", "--proceses", "2"], ["web", "--port", "x"]):
        with pytest.raises(Exception, match=r"no verb|No such option|integer"):
            parse(words)


def engine_commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command and the options of a mention such as `holdfast jobs retry|cancel ID --yes`."""
    words = text.split()[1:]
    path = []
    while words and re.fullmatch(r"[a-z-]+(\|[a-z-]+)*", words[0]) and not words[0].startswith("-"):
        path.append(words.pop(0).split("|"))
        if not hasattr(ROOT.commands.get(path[0][0]), "commands") or len(path) == 2:  # type: ignore[attr-defined]
            break
    options = [word.split("=")[0] for word in words if re.fullmatch(r"--[a-z-]+(=.*)?", word)]
    for first in path[0] if path else []:
        for second in path[1] if len(path) > 1 else [""]:
            yield f"{first} {second}".strip(), options


MENTIONS = [
    (page, verb, options)
    for page in PAGES
    for text in inline(page)
    if re.match(r"holdfast [a-z]", text)
    for verb, options in engine_commands(text)
]


def test_commands_and_options_mentioned_in_prose_exist() -> None:
    wrong = []
    for page, verb, options in MENTIONS:
        command: Any = ROOT
        for word in verb.split():
            command = getattr(command, "commands", {}).get(word)
        known = {"--help"} | {
            one
            for option in getattr(command, "params", ())
            for one in (*option.opts, *option.secondary_opts)
        }
        if command is None or not set(options) <= known:
            wrong.append(f"{name_of(page)}: holdfast {verb} {' '.join(options)}")
    assert wrong == []
    assert len(MENTIONS) > 30


def every_command() -> list[str]:
    found = []
    for name, command in ROOT.commands.items():  # type: ignore[attr-defined]
        found += [f"{name} {one}" for one in getattr(command, "commands", ())] or [name]
    return found


@pytest.mark.parametrize("verb", every_command())
def test_every_command_is_shown_on_a_written_page(verb: str) -> None:
    shown = {" ".join(words[: len(verb.split())]) for _, words in COMMANDS}
    shown |= {mentioned for _, mentioned, _ in MENTIONS}
    assert verb in shown, f"holdfast {verb} is on no page of {name_of(DOCS)}: write about it"
