"""Databases: what an engine offers, and how scripts of SQL are run on it.

Start with `engine.py` (the verbs) and `script.py` (how a verb runs SQL). An engine has parts: the
claimer takes jobs, maintenance prunes and repairs, the doctor examines. `sqlite/`
and `postgres/` hold connections, transactions, wake-ups, and what else differs.
"""
