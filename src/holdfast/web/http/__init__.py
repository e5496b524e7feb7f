"""The server that listens, and its limits. Start with `serving.py`."""
