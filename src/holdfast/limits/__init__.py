"""Limits: how many jobs may run at once, and how many may start in a period.

Start with `limit.py` (what a limit is) and `admission.py` (which jobs may start under it), then
`scripts.py` and its SQL; `client.py` is `app.limits`.
"""
