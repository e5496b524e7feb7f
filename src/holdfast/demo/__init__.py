"""The demonstration: an application with jobs of every kind, and somebody who enqueues them."""
