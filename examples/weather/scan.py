"""`python -m examples.weather.scan hrrr gfs`: look for new runs of these models."""

import sys

from examples.weather.app import app, start_scan

for model_id in sys.argv[1:]:
    print(start_scan(model_id))
app.close()
