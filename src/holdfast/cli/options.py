"""Groups of options that many commands share: a parameter that is a dataclass stands for its fields."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import typer

F = TypeVar("F", bound=Callable[..., Any])


class Commands(typer.Typer):
    """Commands, each of which may take groups of options."""

    def command(self, *args: Any, **settings: Any) -> Callable[[F], F]:
        register = super().command(*args, **settings)

        def decorate(function: F) -> F:
            register(flat(function))
            return function

        return decorate


def flat(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with the fields of its groups as parameters, as Typer needs it."""
    signature = inspect.signature(function, eval_str=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        group: Any = parameter.annotation
        if not dataclasses.is_dataclass(group):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[name] = group
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=field.type,
            )
            for field in dataclasses.fields(group)
        ]

    @functools.wraps(function)
    def call(**given: Any) -> Any:
        for name, group in groups.items():
            fields = dataclasses.fields(group)
            given[name] = group(**{field.name: given.pop(field.name) for field in fields})
        return function(**given)

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call
