"""Events, which report what happened to jobs: listeners in this process, and an outbox that other
processes follow.

Start with `event.py`, then `outbox.py` and its SQL; `feed.py` is `app.events()`.
"""
