"""The command `holdfast`. Start with `root.py`; each command is a module of `commands/`."""
