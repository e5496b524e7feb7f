"""The demonstration: an application with jobs of every kind, and a thread that enqueues them."""
