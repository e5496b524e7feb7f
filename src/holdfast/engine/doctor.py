"""What an operator may ask of a database's set-up."""

from typing import Protocol

from holdfast.engine.records import Finding, Measures


class Doctor(Protocol):
    def diagnose(self) -> list[Finding]:
        """How this database is set up, for an operator: what is well and what is not, with remedies.
        Changes nothing, and tells of a database that cannot be reached instead of raising."""

    def measure(self) -> Measures:
        """How large it is, as far as that costs little to know, and which migrations it has had."""
