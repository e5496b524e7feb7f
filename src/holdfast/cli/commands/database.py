"""`holdfast migrate` and `doctor`: make or upgrade the tables; examine the machine and the database."""

import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from holdfast.cli.output import clean, console
from holdfast.cli.target import AppArgument, Common
from holdfast.engine.records import Finding

_STYLES = {"ok": "green", "warn": "bold yellow", "fail": "bold red"}
_FEW_FILES = 1024
_LITTLE_SPACE = 256 * 1024 * 1024


def migrate(
    application: AppArgument = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL instead, for your own migrations.")
    ] = False,
    *,
    common: Common,
) -> None:
    """Create the tables, or upgrade them to this release. Workers may run meanwhile.

    Safe to repeat, to interrupt, and to run from many machines together."""
    with common.choose(application, make=True) as holdfast:
        if sql:
            typer.echo(holdfast.engine.migrations_sql())
            return
        applied = holdfast.migrate()
    lines = [f"applied {name}" for name in applied]
    nothing = "nothing to do: the tables are those of this release"
    common.report({"applied": applied}, *(lines or [nothing]))


def doctor(application: AppArgument = None, *, common: Common) -> None:
    """Examine this machine and the database: each line is ok, warn or fail, with the remedy.

    The exit code is 1 if something fails.
    """
    with common.choose(application) as holdfast:
        findings = [*examine(holdfast.settings.workdir), *holdfast.engine.doctor.diagnose()]
    if not common.printed_json([finding._asdict() for finding in findings]):
        _print(findings)
    raise typer.Exit(1 if any(finding.level == "fail" for finding in findings) else 0)


def examine(workdir: Path) -> Iterator[Finding]:
    """Yield what is found about this machine."""
    yield Finding("ok", "Holdfast", metadata.version("holdfast"))
    where = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield Finding("ok", "Python", f"{platform.python_version()} on {where}")
    if sys.platform not in ("linux", "darwin"):
        yield Finding("warn", "system", f"{sys.platform}: only Linux and macOS are supported")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _FEW_FILES:
        yield Finding(
            "warn",
            "open files",
            f"at most {files}: a worker with many jobs needs more; raise it with 'ulimit -n'",
        )
    yield _workdir(workdir)


def _workdir(workdir: Path) -> Finding:
    folder = next(path for path in (workdir, *workdir.parents) if path.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(
            "fail",
            "workdir",
            f"{str(workdir)!r} cannot be written to, and jobs that use ctx.workdir would fail: set "
            "HOLDFAST_WORKDIR, or pass workdir=",
        )
    free = shutil.disk_usage(folder).free
    text = f"{workdir}, {free // 1024**2:,} MiB free"
    if free < _LITTLE_SPACE:
        return Finding("warn", "workdir", f"{text}: make room, or choose another folder")
    return Finding("ok", "workdir", text)


def _print(findings: list[Finding]) -> None:
    out = console()
    if not out.is_terminal:
        for level, subject, text in findings:
            typer.echo(f"{level:4}  {subject}: {clean(text)}")
        return
    columns = (Column(no_wrap=True), Column(no_wrap=True, style="bold"), Column(overflow="fold"))
    table = Table(*columns, box=None, show_header=False, pad_edge=False, padding=(0, 1))
    for level, subject, text in findings:
        table.add_row(Text(level, style=_STYLES[level]), subject, clean(text))
    out.print(table)
