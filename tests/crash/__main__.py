"""The long forms of the proofs, as commands.

python -m tests.crash                             lists them
python -m tests.crash kills sqlite --kills 50     runs one, with other numbers than usual
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

from tests.crash.scene import Proof, Scene
from tests.support.server import PostgresServer

NAMES = (
    "kills",
    "zombies",
    "recovery",
    "liveness",
    "restarts",
    "writers",
    "terms",
    "pills",
    "isolation",
    "stuck",
    "points",
    "limits",
    "recurring",
    "chains",
    "followers",
    "migrations",
)


@contextmanager
def scene(engine: str) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if engine == "sqlite":
            yield Scene("sqlite", f"sqlite:///{folder}/jobs.db", "holdfast", folder)
            return
        with PostgresServer() as server:
            yield Scene("postgres", server.url(), f"crash_{uuid4().hex[:8]}", folder, server)


def run(name: str, engine: str, options: dict[str, Any]) -> tuple[Proof, float]:
    module = importlib.import_module(f"tests.crash.{name}")
    begin = time.monotonic()
    with scene(engine) as place:
        try:
            proof: Proof = module.prove(place, **options)
        except AssertionError as problem:
            proof = Proof(problems=[str(problem)])
    return proof, time.monotonic() - begin


def show(name: str, engine: str, proof: Proof, seconds: float) -> None:
    verdict = "FAILED" if proof.problems else "holds"
    figures = ", ".join(f"{key} {value}" for key, value in proof.figures.items())
    print(f"{name:10} {engine:9} {verdict:7} {seconds:5.0f} s  {figures}", flush=True)
    for problem in proof.problems:
        print(f"    {problem}", flush=True)


def run_all() -> bool:
    sound = True
    for name in NAMES:
        module = importlib.import_module(f"tests.crash.{name}")
        for engine in module.ENGINES:
            proof, seconds = run(name, engine, module.LONG)
            show(name, engine, proof, seconds)
            sound = sound and not proof.problems
    return sound


def listing() -> None:
    print(__doc__)
    for name in NAMES:
        module = importlib.import_module(f"tests.crash.{name}")
        options = " ".join(f"--{key} {value}" for key, value in module.LONG.items())
        print(f"{name} {'|'.join(module.ENGINES)} {options}\n    {module.__doc__.strip()}\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash")
    parser.add_argument("name", nargs="?", choices=(*NAMES, "all"))
    arguments, rest = parser.parse_known_args()
    if arguments.name is None:
        listing()
        return 0
    if arguments.name == "all":
        return 0 if run_all() else 1
    module = importlib.import_module(f"tests.crash.{arguments.name}")
    parser = argparse.ArgumentParser(prog=f"python -m tests.crash {arguments.name}")
    parser.add_argument("engine", choices=module.ENGINES)
    for key, value in module.LONG.items():
        parser.add_argument(f"--{key}", type=type(value), default=value)
    options = vars(parser.parse_args(rest))
    engine = options.pop("engine")
    proof, seconds = run(arguments.name, engine, options)
    show(arguments.name, engine, proof, seconds)
    return 1 if proof.problems else 0


if __name__ == "__main__":
    sys.exit(main())
