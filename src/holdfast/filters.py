"""Which jobs."""

from holdfast.jobs import make_filter

__all__ = ["make_filter"]
