"""Databases: the interface of an engine, and how it runs scripts of SQL.

Start with `engine.py` (the methods) and `script.py` (how a method runs SQL). An engine has parts: the
claimer claims jobs, maintenance prunes and repairs, the doctor checks the set-up. `sqlite/` and
`postgres/` have connections, transactions, wake-ups, and whatever else differs.
"""
