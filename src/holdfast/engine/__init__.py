"""Databases: connections, transactions, group commit, migrations, and the protocol of an engine.

Start with `protocol.py` (what an engine offers) and `script.py` (how SQL is run); `sqlite/` and
`postgres/` are the two engines.
"""
