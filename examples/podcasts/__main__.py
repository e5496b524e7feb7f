"""`python -m examples.podcasts`: the directory with several servers, two kills and feeds that fail."""

from examples.podcasts.proof import play
from examples.stage import on_stage

with on_stage("podcasts") as stage:
    play(stage)
