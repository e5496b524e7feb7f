"""Tasks, the functions that an application registers: their options, the context of a run, middleware.

Start with `task.py`: how a call becomes a job. `registration.py` makes a task from a function.
"""
