"""Compare the processor time of a job, from claim to finish, of two versions of Holdfast in one run.

    python -m bench.compare_versions BEFORE [--after SRC] [--pairs 10] [--jobs 20000] [--engine sqlite]

BEFORE and SRC are folders that hold the package `holdfast` (`git worktree add ../before REVISION`, then
`../before/src`). Each pair runs both versions, in alternating order, so that other load
of the machine affects both.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.support.server import PostgresServer

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("def", "async")


def run(source: Path, url: str, kind: str, jobs: int) -> float:
    """Microseconds of processor time that a worker process spends on each job."""
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes"
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(source), str(ROOT))),
            "HOLDFAST_URL": url or f"sqlite:///{folder}/jobs.db",
            "BENCH_NOTES": str(notes),
            "BENCH_LAST": str(jobs - 1),
        }
        command = [sys.executable, "-m", "bench.compare_versions_app"]
        subprocess.run([*command, kind, str(jobs)], env=env, cwd=ROOT, check=True)
        worker = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "holdfast",
                "worker",
                "bench.compare_versions_app:app",
                "--log-level",
                "error",
            ],
            env=env,
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not notes.exists() or len(notes.read_text().split()) < 2:
                if worker.poll() is not None:
                    raise RuntimeError("the worker has ended")
                try:
                    worker.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            worker.terminate()
            worker.wait(30)
        first, last = (float(word) for word in notes.read_text().split()[:2])
        return (last - first) / jobs * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.compare_versions")
    parser.add_argument("before", type=Path)
    parser.add_argument("--after", type=Path, default=ROOT / "src")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--engine", choices=["sqlite", "postgres", "all"], default="all")
    options = parser.parse_args()
    engines = ["sqlite", "postgres"] if options.engine == "all" else [options.engine]
    sources = (options.before.resolve(), options.after.resolve())
    for engine in engines:
        for kind in KINDS:
            with ExitStack() as stack:
                server = stack.enter_context(PostgresServer()) if engine == "postgres" else None
                spent: dict[Path, list[float]] = {source: [] for source in sources}
                for pair in range(options.pairs):
                    for source in sources if pair % 2 else reversed(sources):
                        url = server.create_database() if server else ""
                        spent[source].append(run(source, url, kind, options.jobs))
                before, after = (statistics.median(spent[source]) for source in sources)
                ratios = [b / a for a, b in zip(*spent.values(), strict=True)]
                print(
                    f"{engine} {kind}: before {before:.1f} us, after {after:.1f} us a job; "
                    f"ratio of medians {after / before:.3f}, median of ratios "
                    f"{statistics.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
