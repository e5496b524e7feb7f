"""Compare cron in every time zone, around every change of its clock, with the oracle.

python -m tests.schedules                        all of it, in some minutes
python -m tests.schedules Europe/Paris UTC       these zones
"""

import sys
import time
from zoneinfo import ZoneInfo, available_timezones

from tests.schedules.comparison import (
    EXPRESSIONS,
    QUIET,
    Comparison,
    compare,
    fingerprint,
    transitions,
)


def main(names: list[str]) -> int:
    begin = time.monotonic()
    names = names or sorted(available_timezones())
    seen: dict[tuple, list[str]] = {}
    for name in names:
        seen.setdefault(fingerprint(ZoneInfo(name)), []).append(name)
    print(f"{len(names)} zones, {len(seen)} of them different; {len(EXPRESSIONS)} expressions")
    comparison, compared = Comparison(), 0
    for number, same in enumerate(seen.values(), start=1):
        changes = transitions(ZoneInfo(same[0]))
        compare(same[0], [*changes, QUIET], EXPRESSIONS, comparison)
        compared += len(changes)
        comparison.zones += len(same)
        comparison.transitions += len(changes) * len(same)
        passed = time.monotonic() - begin
        print(
            f"{number}/{len(seen)} {same[0]}: {len(changes)} changes; {comparison.moments} moments, "
            f"{len(comparison.differences)} differences, {passed:.0f} s",
            flush=True,
        )
    for difference in comparison.differences[:50]:
        print(difference)
    print(
        f"{comparison.zones} zones ({len(seen)} different), {comparison.transitions} transitions "
        f"({compared} different), {len(EXPRESSIONS)} expressions: {comparison.moments} moments and "
        f"{comparison.starts} other starts compared, {len(comparison.differences)} differences, "
        f"{time.monotonic() - begin:.0f} s"
    )
    return 1 if comparison.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
