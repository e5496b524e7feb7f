"""Worker processes and their supervisor, and processes for handlers. Start with `supervisor.py`."""
