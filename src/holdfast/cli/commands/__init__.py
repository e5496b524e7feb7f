"""A module for each command of `holdfast`."""
