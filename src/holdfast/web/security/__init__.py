"""Who may ask for what. Start with `gate.py`."""
