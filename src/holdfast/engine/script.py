"""Verbs as scripts: generators that say which statement to run next and receive what it returned.

A script does no I/O and names no driver, so one text serves both engines, our own connections and
the caller's open transaction, sync and async. The drivers' side is one function: `perform(run)`.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
Y = TypeVar("Y")  #: what a generator yields
S = TypeVar("S")  #: what it is sent
Row = tuple[Any, ...]


class Run(NamedTuple):
    """One statement to run, by name."""

    name: str
    params: Mapping[str, Any]
    batch: Sequence[Mapping[str, Any]] | None = None  #: members, for a statement that takes many
    options: frozenset[str] = frozenset()  #: its optional lines
    tell: str = ""  #: of a batch: answer with this field of the members that changed something


class Reply(NamedTuple):
    rows: list[Row]
    changed: int  #: rows, where the driver tells


Script = Generator[Run, Reply, T]


def drive(script: Generator[Y, S, T], perform: Callable[[Y], S]) -> T:
    """Run a script to its end. It receives the error of what fails, and may catch it."""
    try:
        run = next(script)
        while True:
            try:
                reply = perform(run)
            except BaseException as problem:
                run = script.throw(problem)
            else:
                run = script.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(script: Generator[Y, S, T], perform: Callable[[Y], Awaitable[S]]) -> T:
    """The same, on an asynchronous connection."""
    try:
        run = next(script)
        while True:
            try:
                reply = await perform(run)
            except BaseException as problem:
                run = script.throw(problem)
            else:
                run = script.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
