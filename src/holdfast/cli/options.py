"""Groups of options that many commands share: a parameter that is a dataclass stands for its fields."""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer

from holdfast.errors import InvalidInput

F = TypeVar("F", bound=Callable[..., Any])

LIST_LIMIT = 100
_LIMIT = typer.Option("--limit", min=0, help="At most so many.")
LimitOption = Annotated[int | None, _LIMIT]
ListLimitOption = Annotated[int, _LIMIT]
OpenOption = Annotated[
    bool | None, typer.Option("--open/--no-open", help="Open a browser; on a terminal it does.")
]


class Commands(typer.Typer):
    """A group of commands, whose parameters may be groups of options."""

    def command(self, *args: Any, **settings: Any) -> Callable[[F], F]:
        register = super().command(*args, **settings)

        def decorate(function: F) -> F:
            register(flatten_options(function))
            return function

        return decorate


def flatten_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the fields of its groups as parameters, as Typer needs it."""
    signature = inspect.signature(function, eval_str=True)
    taken = {name: parameter.annotation for name, parameter in signature.parameters.items()}

    @functools.wraps(function)
    def call(**given: Any) -> Any:
        return function(**{name: _value(name, kind, given) for name, kind in taken.items()})

    parameters = [
        field
        for name, parameter in signature.parameters.items()
        for field in _fields(name, parameter.annotation, parameter.default)
    ]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _fields(name: str, kind: Any, default: Any) -> Iterator[inspect.Parameter]:
    """Yield the parameter or, of a group, those of its fields; a field may be a group."""
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            yield from _fields(field.name, field.type, field.default)
    else:
        default = inspect.Parameter.empty if default is dataclasses.MISSING else default
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
        )


def _value(name: str, kind: Any, given: dict[str, Any]) -> Any:
    """Return the value of a parameter; a group is made of the values of its fields."""
    if not dataclasses.is_dataclass(kind):
        return given[name]
    values = {
        field.name: _value(field.name, field.type, given) for field in dataclasses.fields(kind)
    }
    return kind(**values)  # type: ignore[operator]


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The option of commands that ask before they change something."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False

    def ask(self, question: str, refusal: str, *, skip: bool = False) -> None:
        """Return if --yes was given or the user agrees; exit with code 1 if the user does not.

        Raises InvalidInput with `refusal` if stdin is no terminal. `skip`: there is nothing to
        change, and no question.
        """
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise InvalidInput(f"{refusal} (stdin is no terminal): add --yes")
        if not skip and not typer.confirm(question, err=True):
            typer.echo("nothing was changed", err=True)
            raise typer.Exit(1)
