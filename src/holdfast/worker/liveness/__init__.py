"""Heartbeats, deaths and deadlines. Start with `heartbeat.py`."""
