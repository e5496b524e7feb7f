"""The plan and the work of a statement, and the problems in them."""

from collections import Counter
from dataclasses import dataclass, field

from holdfast.engine.script import Command, Statements
from tests.plans.cases import Case, indexes


class RecordingStatements(Statements):
    """The library's statements, recording which was requested last."""

    asked: tuple[str, frozenset[str]] = ("", frozenset())

    def commands(self, name: str, options: frozenset[str] = frozenset()) -> tuple[Command, ...]:
        self.asked = name, options
        return super().commands(name, options)


@dataclass
class Explained:
    """One executed command. The tables `jobs` and `attempts` grow; the others stay small."""

    name: str
    options: frozenset[str]
    sql: str
    plan: str
    cost: float = 0.0  #: the planner's estimate
    indexes: set[str] = field(default_factory=set)
    scans: list[str] = field(default_factory=list)  #: reads of a whole table
    rows: float = 0  #: read of jobs and attempts
    work: int = 0  #: pages touched, or steps of SQLite's machine
    most_work: int | None = None

    def add(self, touched: Counter[str]) -> None:
        """Add the server's counters. An index-only scan shows only in the plan, so the larger number
        counts."""
        self.rows = max(self.rows, touched.pop("rows", 0))
        self.scans += [what for what, count in touched.items() if count]

    def problems(self, case: Case, *, by_name: bool = True) -> list[str]:
        found = [f"reads a whole table: {scan}" for scan in self.scans]
        strange = self.indexes - indexes(self.name, self.options)
        if strange and by_name:
            found.append(f"walks {sorted(strange)}")
        if self.rows > case.rows:
            found.append(f"looks at {self.rows:.0f} rows, at most {case.rows}")
        if self.most_work is not None and self.work > self.most_work:
            found.append(f"takes {self.work} steps, at most {self.most_work}")
        return [self.says(text) for text in found]

    def says(self, text: str) -> str:
        return f"{self.name} {sorted(self.options)} {text}\n{self.plan}"


def problems(case: Case, ran: list[Explained], *, by_name: bool = True) -> list[str]:
    return [problem for one in ran for problem in one.problems(case, by_name=by_name)]


def growth(
    small: list[Explained], large: list[Explained], *, factor: float, free: int
) -> list[str]:
    """Return the statements whose work grows with the table. This also finds index entries that are
    skipped without being counted in a plan."""
    before, after = _total(small), _total(large)
    return [
        f"{name} {sorted(options)}: from {before[name, options]} to {work}"
        for (name, options), work in after.items()
        if work > factor * before[name, options] + free
    ]


def _total(ran: list[Explained]) -> Counter[tuple[str, frozenset[str]]]:
    total = Counter[tuple[str, frozenset[str]]]()
    for one in ran:
        total[one.name, one.options] += one.work
    return total
