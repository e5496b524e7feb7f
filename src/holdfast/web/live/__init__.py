"""Live events for browsers. Start with `hub.py`."""
