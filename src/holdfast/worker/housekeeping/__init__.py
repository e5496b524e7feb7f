"""Services that a worker runs at intervals, besides running jobs. Start with `services.py`."""
