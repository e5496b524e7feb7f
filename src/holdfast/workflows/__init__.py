"""Jobs that wait for other jobs.

Start with `rules.py` (what happens after a job has ended), then `scripts.py` and its SQL; an
application uses `builder.py` and `client.py`.
"""
