"""Authentication, permissions and the checks of every request. Start with `gate.py`."""
