"""Statistics and health. Start with `metrics.py` (values), then `rollups.py` and its SQL; applications
call `stats.py` and `health.py`."""
