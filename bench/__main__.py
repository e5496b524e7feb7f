"""`python -m bench`: run the chosen cases and print a table."""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from bench.cases import (
    events,
    jobs,
    limits,
    live,
    monitoring,
    postgres,
    retention,
    sqlite,
    web,
    worker,
)
from bench.databases import PostgresDatabases, SqliteDatabases, open_postgres, open_sqlite
from bench.job_store import Databases
from bench.measure import FULL, QUICK, Case, Pace, Row

AnyDatabases = TypeVar("AnyDatabases", bound=Databases)
ENGINES = ("sqlite", "postgres")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Holdfast against hand-written SQL, and its worker against others.",
    )
    parser.add_argument("engine", nargs="?", choices=[*ENGINES, "all"], default="all")
    parser.add_argument("--quick", action="store_true", help="measure for minutes, less exactly")
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        help="run only this case, or the cases with this prefix; may be repeated",
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    return parser.parse_args()


def main() -> int:
    options = parse()
    console = Console(width=None if sys.stdout.isatty() else 120)
    progress = Console(stderr=True)
    pace = QUICK if options.quick else FULL
    rows: list[tuple[str, Row]] = []
    begin = time.monotonic()
    for engine, found in measure(options.engine, options.only, pace, progress):
        rows += [(engine, row) for row in found]
    console.print(table(rows))
    progress.print(f"{time.monotonic() - begin:.0f} s", style="dim")
    missed = any(row.passed is False for _, row in rows)
    return int(options.check and missed)


def measure(
    engine: str, only: list[str] | None, pace: Pace, progress: Console
) -> Iterator[tuple[str, list[Row]]]:
    if engine in ("sqlite", "all"):
        of_sqlite: list[Case[SqliteDatabases]] = [
            *jobs.cases(),
            *limits.cases(),
            *monitoring.cases(),
            *retention.cases(),
            *web.cases(),
            *events.cases(),
            *live.cases(),
            *sqlite.cases(),
            *worker.cases(),
        ]
        yield from _run("sqlite", open_sqlite(), _chosen(of_sqlite, only), pace, progress)
    if engine in ("postgres", "all"):
        of_postgres: list[Case[PostgresDatabases]] = [
            *jobs.cases(),
            *limits.cases(),
            *monitoring.cases(),
            *retention.cases(),
            *web.cases(),
            *events.cases(),
            *live.cases(),
            *postgres.cases(),
            *worker.cases(),
        ]
        yield from _run("postgres", open_postgres(), _chosen(of_postgres, only), pace, progress)


def _chosen(known: list[Case[AnyDatabases]], only: list[str] | None) -> list[Case[AnyDatabases]]:
    if not only:
        return known
    names = {case.name for case in known}
    begin = tuple(
        word for word in only if word not in names
    )  # "claim": all of them; "claim-1": one
    return [case for case in known if case.name in only or case.name.startswith(begin)]


def _run(
    engine: str,
    opened: AbstractContextManager[AnyDatabases],
    chosen: list[Case[AnyDatabases]],
    pace: Pace,
    progress: Console,
) -> Iterator[tuple[str, list[Row]]]:
    if not chosen:
        return
    with opened as databases:
        for case in chosen:
            progress.print(f"{engine} {case.name}", style="dim")
            yield engine, case.run(databases, pace)


def table(rows: list[tuple[str, Row]]) -> Table:
    shown = Table(title="Holdfast against baselines: jobs per second, or as named by the case")
    for heading in ("", "case"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("baseline", "Holdfast", "ratio", "goal", ""):
        shown.add_column(heading, justify="right", no_wrap=True)
    last = ""
    for engine, row in rows:
        if last and engine != last:
            shown.add_section()
        shown.add_row(
            engine if engine != last else "",
            row.case,
            row.note or _number(row.base),
            _number(row.holdfast),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            "" if row.goal is None else str(row.goal),
            {True: "[green]ok[/]", False: "[red]MISSED[/]", None: ""}[row.passed],
        )
        last = engine
    return shown


def _number(rate: float | None) -> str:
    if rate is None:
        return ""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.2f}"


if __name__ == "__main__":
    sys.exit(main())
