"""The process that runs jobs."""

from holdfast.worker.worker import Worker

__all__ = ["Worker"]
