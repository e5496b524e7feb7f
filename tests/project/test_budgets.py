"""Budgets: the sizes and the public names that a change may not exceed by accident.

A number here is a decision: splitting the code is the usual answer, raising it the rare one.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_ARCHITECTURE_LINES = 120
MAX_DECISION_LINES = 40

# Everything `from holdfast import …` promises. Adding a name here is a promise to keep it.
PUBLIC_NAMES = [
    "AppClosed",
    "Attempt",
    "Backoff",
    "BodyNotLoaded",
    "Context",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseReplaced",
    "DatabaseUnavailable",
    "Discard",
    "Event",
    "EventsGone",
    "Figures",
    "Health",
    "Holdfast",
    "HoldfastError",
    "InvalidArguments",
    "InvalidInput",
    "InvalidTransition",
    "InvalidURL",
    "Job",
    "JobFailed",
    "JobNotFound",
    "KeyConflict",
    "Limit",
    "LimitInfo",
    "LogLine",
    "LostClaim",
    "Middleware",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "QueueInfo",
    "Retry",
    "RunEnd",
    "SchemaError",
    "Snooze",
    "Stats",
    "Status",
    "StorageError",
    "Task",
    "TransactionError",
    "UnknownLimit",
    "UnknownTask",
    "UnsafeFilesystem",
    "UsedAfterFork",
]


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def too_long(paths: list[Path], limit: int) -> list[str]:
    counted = [(path.relative_to(ROOT), line_count(path)) for path in paths]
    return [f"{path}: {lines} lines, at most {limit}" for path, lines in counted if lines > limit]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function of a file, with its lines from `def` to the end (decorators not counted)."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            where = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
            yield where, node.end_lineno - node.lineno + 1


def test_there_are_sources():
    """Without this, a moved folder would make every budget below pass on nothing."""
    assert SOURCES


def test_source_files_are_short():
    found = too_long(SOURCES, MAX_FILE_LINES)
    # A catalogue of small named statements: long is fine, endless is not.
    found += too_long(sorted((ROOT / "src").rglob("*.sql")), 2 * MAX_FILE_LINES)
    assert not found, "\n".join(found)


def test_functions_are_short():
    measured = [item for path in SOURCES for item in functions(path)]
    limit = MAX_FUNCTION_LINES
    found = [
        f"{where}: {lines} lines, at most {limit}" for where, lines in measured if lines > limit
    ]
    assert not found, "\n".join(found)


def test_public_names_are_pinned():
    import holdfast

    assert sorted(holdfast.__all__) == sorted(PUBLIC_NAMES)


def test_public_names_exist():
    import holdfast

    assert [name for name in holdfast.__all__ if not hasattr(holdfast, name)] == []


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [("ARCHITECTURE.md", MAX_ARCHITECTURE_LINES), ("docs/decisions/*.md", MAX_DECISION_LINES)],
)
def test_documents_are_short(pattern: str, limit: int):
    found = too_long(sorted(ROOT.glob(pattern)), limit)
    assert not found, "\n".join(found)
