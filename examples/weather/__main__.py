"""`python -m examples.weather`: three models, several workers on one file, one of them killed."""

from examples.harness import run_harness
from examples.weather.checks import run_checks

with run_harness("weather") as harness:
    run_checks(harness)
