"""The crash tests in their long form, as commands.

python -m tests.crash                             lists them
python -m tests.crash kills sqlite --kills 50     runs one, with other numbers
python -m tests.crash all                         runs every one, and prints a table
"""

import argparse
import importlib
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.crash.testbed import CrashTestbed, Report
from tests.support.server import PostgresServer

NAMES = (
    "kills",
    "zombies",
    "recovery",
    "liveness",
    "restarts",
    "writers",
    "sigterms",
    "poison_jobs",
    "isolation",
    "stuck_threads",
    "kill_points",
    "limits",
    "recurring",
    "chains",
    "followers",
    "migrations",
)


@contextmanager
def open_testbed(engine: str) -> Iterator[CrashTestbed]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if engine == "sqlite":
            yield CrashTestbed("sqlite", f"sqlite:///{folder}/jobs.db", "holdfast", folder)
            return
        with PostgresServer() as server:
            yield CrashTestbed("postgres", server.url(), f"crash_{uuid4().hex[:8]}", folder, server)


def run(name: str, engine: str, options: dict[str, Any]) -> tuple[Report, float]:
    module = importlib.import_module(f"tests.crash.{name}")
    begin = time.monotonic()
    with open_testbed(engine) as testbed:
        try:
            report: Report = module.run(testbed, **options)
        except AssertionError as problem:
            report = Report(problems=[str(problem)])
    return report, time.monotonic() - begin


def show(name: str, engine: str, report: Report, seconds: float) -> None:
    verdict = "FAILED" if report.problems else "holds"
    figures = ", ".join(f"{key} {value}" for key, value in report.figures.items())
    print(f"{name:13} {engine:9} {verdict:7} {seconds:5.0f} s  {figures}", flush=True)
    for problem in report.problems:
        print(f"    {problem}", flush=True)


def run_all() -> bool:
    sound = True
    for name in NAMES:
        module = importlib.import_module(f"tests.crash.{name}")
        for engine in module.ENGINES:
            report, seconds = run(name, engine, module.LONG_RUN)
            show(name, engine, report, seconds)
            sound = sound and not report.problems
    return sound


def print_listing() -> None:
    print(__doc__)
    for name in NAMES:
        module = importlib.import_module(f"tests.crash.{name}")
        options = " ".join(f"--{key} {value}" for key, value in module.LONG_RUN.items())
        print(f"{name} {'|'.join(module.ENGINES)} {options}\n    {module.__doc__.strip()}\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash")
    parser.add_argument("name", nargs="?", choices=(*NAMES, "all"))
    arguments, rest = parser.parse_known_args()
    if arguments.name is None:
        print_listing()
        return 0
    if arguments.name == "all":
        return 0 if run_all() else 1
    module = importlib.import_module(f"tests.crash.{arguments.name}")
    parser = argparse.ArgumentParser(prog=f"python -m tests.crash {arguments.name}")
    parser.add_argument("engine", choices=module.ENGINES)
    for key, value in module.LONG_RUN.items():
        parser.add_argument(f"--{key}", type=type(value), default=value)
    options = vars(parser.parse_args(rest))
    engine = options.pop("engine")
    report, seconds = run(arguments.name, engine, options)
    show(arguments.name, engine, report, seconds)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
