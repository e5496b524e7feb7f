"""The command `holdfast`. Start with `root.py`; `commands/` has a module for each kind of thing."""
