"""The other side of a comparison: one module for each peer, run by an interpreter that has only that
peer. Each has the same four commands (see `script.py`)."""
