"""Values that know nothing of jobs: time, ids, durations, JSON, names. Start with `codec.py`."""
