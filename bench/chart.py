"""The picture of the README: jobs per second at which one worker process empties a queue, of Holdfast
and of its peers, measured in turns in one run.

python -m bench.chart docs/pictures/speed.svg [--quick]
"""

import argparse
import statistics
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from rich.console import Console

from bench.cases.worker import SLOTS, drained
from bench.contenders import WorkerDatabases, holdfast_worker, peers
from bench.databases import open_postgres, open_sqlite
from bench.environments import REQUIREMENTS
from bench.measure import FULL, QUICK, Pace

WIDTH, LEFT, RIGHT, ROW, TOP = 720, 235, 70, 30, 64
STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .title { font-size: 15px; font-weight: 600 }
    .note { font-size: 11px; fill: #59636e }
    .ours { fill: #0f766e } .peer { fill: #b6bec7 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .note { fill: #9198a1 }
      .ours { fill: #2dd4bf } .peer { fill: #545d68 }
    }"""


@dataclass(frozen=True)
class Bar:
    label: str
    rate: float
    is_holdfast: bool


def measured(databases: WorkerDatabases, title: str, pace: Pace) -> list[Bar]:
    """Return the rates, the fastest first. Raises if a peer is not installed."""
    mine, others = holdfast_worker(databases, SLOTS), peers(databases)
    rates = drained(databases, [mine, *others], pace)
    if missing := [peer.name for peer in others if peer not in rates]:
        raise SystemExit(f"the chart needs these peers, too: {', '.join(missing)}")
    bars = [
        Bar(f"{named(who.name)}, {title}", statistics.median(found), who is mine)
        for who, found in rates.items()
    ]
    return sorted(bars, key=lambda bar: -bar.rate)


def named(contender: str) -> str:
    """Return the name of a contender; of a peer, with its version."""
    wanted = REQUIREMENTS.get(contender, [""])[0].rpartition("==")[2]
    return f"{contender} {wanted}".strip()


def draw(bars: list[Bar], note: str) -> str:
    scale = (WIDTH - LEFT - RIGHT) / max(bar.rate for bar in bars)
    height = TOP + ROW * len(bars) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<style>{STYLE}\n</style>",
        f'<text class="title" x="0" y="20">{TITLE}</text>',
        f'<text class="note" x="0" y="40">{note}</text>',
    ]
    for number, bar in enumerate(bars):
        y, length = TOP + ROW * number, max(2.0, bar.rate * scale)
        kind = "ours" if bar.is_holdfast else "peer"
        parts += [
            f'<text x="{LEFT - 10}" y="{y + 15}" text-anchor="end">{bar.label}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{length:.1f}" height="20" rx="3"/>',
            f'<text x="{LEFT + length + 8:.1f}" y="{y + 15}">{bar.rate:,.0f}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


TITLE = "Jobs per second, one worker process, every finish durable"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chart", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    pace = QUICK if options.quick else FULL
    bars, fewer = [], ""
    with open_sqlite() as sqlite:
        bars += measured(sqlite, "SQLite", pace)
    with open_postgres() as postgres:
        bars += measured(postgres, "PostgreSQL", pace)
        fewer = ", ".join(
            f"{pace.backlog * peer.share:,.0f} for {peer.name}"
            for peer in peers(postgres)
            if peer.share < 1
        )
    turns = f"median of {pace.rounds} turns on one machine"
    note = f"{pace.backlog:,} jobs that do nothing ({fewer}); {turns}"
    options.file.write_text(draw(bars, f"{note}, {date.today():%B %Y}"))
    Console().print(*(f"{bar.label}: {bar.rate:,.0f}" for bar in bars), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
