"""Serving HTTP without a host application, with limits on connections. Start with `serving.py`."""
