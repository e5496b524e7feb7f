"""`python -m examples.podcasts`: several servers, three kills, and feeds that fail."""

from examples.harness import run_harness
from examples.podcasts.checks import run_checks

with run_harness("podcasts") as harness:
    run_checks(harness)
