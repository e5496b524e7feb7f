"""The process that claims jobs and runs them. Start with `worker.py`, which wires the parts."""
