"""Tests, in the rooms of `src/holdfast`; one that takes `database`, `engine` or `app` runs on both.

What belongs to no room: `crash/` kills processes, `plans/` asks the databases how they run each
statement, `browser/` drives Chromium, `docs/` runs the code of the documentation, `project/` keeps the
budgets, and `support/` is what tests share.
"""
