"""Jobs: one row each, and everything that happens to a row.

Start with `job.py` (the values, and the table of legal transitions) and `outcome.py` (what follows from
how a run ended). The scripts `commands`, `claim`, `finish` and `read` lie beside their SQL, in both
dialects. `client.py` is `app.jobs`.
"""
