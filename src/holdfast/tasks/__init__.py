"""What an application registers: tasks, their options, the context of a run, middleware.

Start with `task.py`: how a call becomes a job. `registration.py` makes a task from a function.
"""
