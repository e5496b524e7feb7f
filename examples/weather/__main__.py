"""`python -m examples.weather`: three models, several workers on one file, one of them killed."""

from examples.stage import on_stage
from examples.weather.proof import play

with on_stage("weather") as stage:
    play(stage)
