"""A fake forecast centre, for the checks: `python -m examples.weather.forecast_server`.

/MODEL/ lists its runs with their hours, /MODEL/RUN/fHHH.grib2 is a file: invented fields.
"""

import json

import numpy as np

from examples.remote_server import Answer, RemoteServer
from examples.weather.grib import Field, encode

Runs = dict[str, list[int]]
SHAPE = (64, 96)


def field_of(model_id: str, run_id: str, hour: int) -> Field:
    """Return temperatures in kelvin, which differ from file to file."""
    seed = sum(f"{model_id}{run_id}{hour}".encode())
    rows, columns = np.indices(SHAPE, dtype=np.float32)
    waves = np.sin(rows / 7 + seed) * np.cos(columns / 11 + hour)
    field: Field = (280 - rows / 4 + 5 * waves).astype(np.float32)
    return field


class ForecastServer:
    """The files of some models. A request for a file in `broken` fails: the disk is full."""

    def __init__(self, models: dict[str, Runs]) -> None:
        self.models = models
        self.broken: set[str] = set()

    def site(self, path: str, times: int) -> Answer:
        if path in self.broken:
            return Answer(b"no space left on device", 500)
        match path.strip("/").split("/"):
            case [model] if model in self.models:
                return Answer(json.dumps(self.models[model]).encode(), 200, "application/json")
            case [model, run, file] if run in self.models.get(model, {}):
                hour = int(file[1:4])
                return Answer(encode(field_of(model, run, hour)), 200, "application/octet-stream")
        return Answer(b"not here", 404)


EXAMPLE = {
    "hrrr": {"20230125_06": [0, 1, 2], "20230125_12": [0, 1, 2]},
    "gfs": {"20230125_00": [0, 3, 6], "20230125_12": [0, 3, 6]},
}

if __name__ == "__main__":
    remote = RemoteServer(ForecastServer(EXAMPLE).site, pace=0.5, port=8020)
    print(f"{', '.join(EXAMPLE)} at {remote.url}/MODEL/; each answer takes half a second")
    remote.serve()
