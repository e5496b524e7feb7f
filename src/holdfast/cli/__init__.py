"""The command `holdfast`. It uses the application object and what engines show, nothing below."""

from holdfast.cli.root import cli, main

__all__ = ["cli", "main"]
