"""Every line of the designs that the examples grew from is answered: by a test, or by a deviation.

A row of a SEED.md: | lines | what it asks for | what shows it |
The last cell names tests (`tests/examples/test_x.py::test_y`), or begins with "deviation:" or, for
headings and prose that ask for nothing, with "context".
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ["feeds", "media_manager", "podcasts", "videos", "weather"]
LENGTH = re.compile(r"^The design has (\d+) lines\.", re.MULTILINE)
ROW = re.compile(r"^\| *(\d+)(?:-(\d+))? *\| *(.+?) *\| *(.+?) *\|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")

Row = tuple[int, int, str, str]


def rows(name: str) -> list[Row]:
    text = (ROOT / "examples" / name / "SEED.md").read_text()
    return [(int(a), int(b or a), asks, shown) for a, b, asks, shown in ROW.findall(text)]


@cache
def names_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def problem(row: Row) -> str | None:
    first, last, asks, shown = row
    where = f"lines {first}-{last} ({asks})"
    if shown.startswith("context"):
        return None
    if shown.startswith("deviation:"):
        return None if len(shown) > 30 else f"{where}: the deviation is not explained"
    named = NAMED.findall(shown)
    if not named:
        return f"{where}: neither a test nor a deviation"
    for file, test in named:
        if not (ROOT / file).exists() or test not in names_of(ROOT / file):
            return f"{where}: there is no {file}::{test}"
    return None


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_row_has_a_test_or_a_deviation(name: str) -> None:
    assert rows(name)
    assert [found for row in rows(name) if (found := problem(row))] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_line_of_the_design_is_in_a_row(name: str) -> None:
    length = LENGTH.search((ROOT / "examples" / name / "SEED.md").read_text())
    assert length, "SEED.md does not say how many lines the design has"
    covered = {line for first, last, *_ in rows(name) for line in range(first, last + 1)}
    assert sorted(set(range(1, int(length[1]) + 1)) - covered) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_imports_only_public_names(name: str) -> None:
    for path in (ROOT / "examples" / name).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast"):
                assert node.module in PUBLIC, f"{path.name}: {node.module}"
                assert not any(alias.name.startswith("_") for alias in node.names), path.name
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.startswith("holdfast"):
                        assert alias.name in PUBLIC, f"{path.name}: {alias.name}"


PUBLIC = {"holdfast", "holdfast.web", "holdfast.testing"}
