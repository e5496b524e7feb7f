"""Settings: one JSON file, with the names of the design that this grew from (docs: README.md).

MEDIA_SETTINGS names the file. The settings of workers are read when a process starts; the switches
of the phases are read again whenever a phase ends, so that a change needs no restart.
"""

import os
from enum import IntEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from holdfast import Backoff


class CamelCaseModel(BaseModel):
    """camelCase in the file. A misspelt setting is refused, since it would silently do nothing."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


class WorkerConfig(CamelCaseModel):
    """Times are milliseconds here, and only here."""

    concurrency: int = Field(4, ge=1)  #: jobs at a time
    poll_interval: int = Field(1000, ge=1)
    timeout: int = Field(300_000, ge=1)  #: of one attempt
    retry_delay: int = Field(5000, ge=0)
    retry_multiplier: float = Field(2, ge=1)
    max_retries: int = Field(3, ge=1)  #: attempts in all

    @property
    def backoff(self) -> Backoff:
        return Backoff(
            delay=self.retry_delay / 1000, multiplier=self.retry_multiplier, jitter=0
        )  # exact: 5, 10, 20 s


class Scanning(CamelCaseModel):
    enabled: bool = True
    chain_to_enrich: bool = True
    every: str = "1h"


class Enrichment(CamelCaseModel):
    enabled: bool = True
    chain_to_publish: bool = True


class Publishing(CamelCaseModel):
    enabled: bool = True
    chain_to_sync: bool = False


class Syncing(CamelCaseModel):
    enabled: bool = True


class Phases(CamelCaseModel):
    """Between a phase and the next are two switches: its own `chainTo...`, the other's `enabled`."""

    scanning: Scanning = Scanning()
    enrichment: Enrichment = Enrichment()
    publishing: Publishing = Publishing()
    syncing: Syncing = Syncing()

    def then_enrich(self) -> bool:
        return self.scanning.chain_to_enrich and self.enrichment.enabled

    def then_publish(self) -> bool:
        return self.enrichment.chain_to_publish and self.publishing.enabled

    def then_sync(self) -> bool:
        return self.publishing.chain_to_sync and self.syncing.enabled


class Settings(CamelCaseModel):
    database: str = "sqlite:///media.db"
    database_timeout: int = 5  #: seconds
    cache: Path = Path("cache")
    provider: str = "http://127.0.0.1:8700"
    provider_name: str = "TMDB"
    provider_timeout: float = 10.0  #: seconds for one answer
    provider_rate: str = "40/10s"  #: of enrichments begun, over all workers
    players: dict[int, str] = {}  #: by number: where to tell a player that its library has changed
    api_key: str = Field("change-me", min_length=8)
    orphan_age: float = 3600.0  #: seconds; younger files may belong to a run that has not ended
    worker: WorkerConfig = WorkerConfig()
    phases: Phases = Phases()


def read_settings() -> Settings:
    place = os.environ.get("MEDIA_SETTINGS")
    return Settings() if place is None else Settings.model_validate_json(Path(place).read_bytes())


class Level(IntEnum):
    """How urgent: from 1, the most, to 10. 4 and 6 are not used, 8 to 10 are kept for later."""

    CRITICAL = 1  #: manual: enrich this, publish this
    USER = 2  #: requested by a user: another poster, an edited title
    WEBHOOK = 3  #: a scan because another program said that there is something new
    NORMAL = 5  #: automatic
    BACKGROUND = 7  #: maintenance of the cache


def to_priority(level: int) -> int:
    """Invert the scale, since Holdfast runs higher numbers first. Nothing else does this."""
    if not 1 <= level <= 10:
        raise ValueError(f"priority {level}: give a number from 1 (first) to 10")
    return 10 - level


def inherited(manual: bool) -> Level:
    """Return the urgency of the next phase: after a manual job, a user is still waiting."""
    return Level.CRITICAL if manual else Level.NORMAL
