"""The tests of Holdfast. A package, so that they can import `tests.support`."""
