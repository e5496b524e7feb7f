"""Tests, in folders named like those of `src/holdfast`; a test with `database`, `engine` or `app` runs
on both engines.

Folders without a counterpart: `crash/` kills processes, `plans/` asks the databases how they run each
statement, `browser/` drives Chromium, `docs/` runs the code of the documentation, `project/` keeps the
budgets, and `support/` holds what tests share.
"""
