"""The page of the command: every subcommand and option, read from the program."""

from collections.abc import Iterator
from typing import Any

import typer.main

from holdfast.cli.root import EXIT_CODES, cli
from tools.reference.markdown import block, code, heading, plain, prose, sentence, table

PREFIX = "HOLDFAST"
CODES = {
    0: "done; `holdfast health`: no problems",
    1: "failed; `holdfast health`: problems were found",
    2: "invalid use: an option, an argument or a value breaks a rule",
}


def commands() -> dict[str, Any]:
    """Return every subcommand by its full name, in the order of the program."""
    root = typer.main.get_command(cli)
    return dict(_walk("holdfast", root))


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    for word, one in getattr(command, "commands", {}).items():
        if hasattr(one, "commands"):
            yield from _walk(f"{name} {word}", one)
        else:
            yield f"{name} {word}", one


def options(command: Any) -> list[Any]:
    """Return the options and arguments of a subcommand, without hidden ones."""
    return [one for one in command.params if not getattr(one, "hidden", False)]


def variable(name: str, option: Any) -> str | None:
    """Return the environment variable of an option, if it has one."""
    if option.param_type_name == "argument":
        return None
    if option.envvar:
        return str(option.envvar)
    if not getattr(option, "allow_from_autoenv", True) or option.name is None:
        return None
    path = "_".join(name.split()[1:])
    return f"{PREFIX}_{path}_{option.name}".upper().replace("-", "_")


def usage(name: str, command: Any) -> str:
    words = [name]
    for one in options(command):
        if one.param_type_name == "argument":
            word = one.metavar or str(one.name).upper()
            words.append(word if one.required else f"[{word}]")
    return " ".join([*words, "[OPTIONS]"])


def row(name: str, option: Any) -> list[str]:
    if option.param_type_name == "argument":
        shown = code(option.metavar or str(option.name).upper())
    else:
        shown = ", ".join(map(code, [*option.opts, *option.secondary_opts]))
        if option.metavar and not option.is_flag:
            shown += f" {code(option.metavar)}"
    default = option.default if isinstance(option.default, str | int | float) else ""
    told = variable(name, option)
    return [
        shown,
        sentence(plain(option.help or "")),
        "" if default is False or default == "" else code(default),
        code(told) if told else "",
    ]


def page() -> str:
    parts = [
        "# Command line\n\nEvery subcommand of `holdfast`. [The command](../guides/command.md) shows "
        "them in use. `--help` prints the same for each.\n",
        heading(2, "Exit codes", "exit-codes"),
        "Scripts may rely on them.\n",
        table(("code", "meaning"), ([code(number), words] for number, words in exit_codes())),
        heading(2, "In the environment", "environment"),
        "Every option can be set in the environment: `HOLDFAST_`, the command, the option. The command "
        "line wins over the environment.\n",
    ]
    group = ""
    for name, command in commands().items():
        first = name.split()[1]
        if first != group:
            group = first
            parts.append(heading(2, code(f"holdfast {first}"), f"holdfast-{first}"))
        if name.count(" ") > 1:
            parts.append(heading(3, code(name), name.replace(" ", "-")))
        parts += [block(usage(name, command), "text"), prose(command.help or "")]
        head = ("option", "meaning", "default", "in the environment")
        parts.append(table(head, (row(name, one) for one in options(command))))
    return "".join(parts)


def exit_codes() -> list[tuple[int, str]]:
    found = dict(CODES)
    for kind, number in EXIT_CODES.items():
        words = (kind.__doc__ or "").rstrip(".")
        words = words[:1].lower() + words[1:]
        if number not in CODES:
            found[number] = f"{found[number]}; {words}" if number in found else words
    return [(number, sentence(words)) for number, words in sorted(found.items())]
