"""`python -m examples.podcasts`: several servers, three kills, and feeds that fail."""

from examples.podcasts.proof import play
from examples.stage import on_stage

with on_stage("podcasts") as stage:
    play(stage)
