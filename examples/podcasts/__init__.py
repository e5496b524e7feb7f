"""A podcast directory that imports feeds in the background: see README.md beside this file."""
