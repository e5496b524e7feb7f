"""What a worker does once in a while, besides running jobs. Start with `services.py`."""
