"""A job in a worker, from its claim to its finish. Start with `dispatcher.py`, then `runners.py`."""
