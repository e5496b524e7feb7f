"""Figures and health: what was done, what waits, and what is wrong.

Start with `metrics.py` (values), then `rollups.py` and its SQL; `stats.py` and `health.py` are what an
application calls.
"""
