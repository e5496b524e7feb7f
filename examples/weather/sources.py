"""What forecast centres publish, over HTTP: which files there are, and the files. No jobs here."""

import json
import os
import re
import shutil
import urllib.request
from pathlib import Path
from typing import NamedTuple

SOURCE = os.environ.get("WEATHER_SOURCE", "http://127.0.0.1:8020")
RUN = re.compile(r"\d{8}_\d{2}")  # a day and an hour, of which the forecast is


class Found(NamedTuple):
    """A file of a model: the forecast of one run for so many hours later."""

    run_id: str
    hour: int


def listing(model_id: str) -> list[Found]:
    """Return the files that the centre lists for a model; raises if a name is malformed."""
    with urllib.request.urlopen(f"{SOURCE}/{model_id}/", timeout=30) as answer:
        runs = json.load(answer)
    for run_id in runs:
        if not RUN.fullmatch(run_id):
            raise ValueError(f"{SOURCE}/{model_id}/ lists {run_id!r}: a run is named YYYYMMDD_HH")
    return [Found(run, int(hour)) for run, hours in runs.items() for hour in hours]


def download(model_id: str, run_id: str, hour: int, to: Path) -> int:
    """Download a file; returns its size."""
    url = f"{SOURCE}/{model_id}/{run_id}/f{hour:03}.grib2"
    with urllib.request.urlopen(url, timeout=30) as answer, to.open("wb") as file:
        shutil.copyfileobj(answer, file)
    return to.stat().st_size
