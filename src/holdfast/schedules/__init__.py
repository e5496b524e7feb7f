"""Recurring jobs: one row each, which returns to `scheduled` after every run.

Start with `next_run.py` (when a job runs again), then `scripts.py` and its SQL; `client.py` is
`app.schedules`.
"""
