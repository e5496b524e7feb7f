"""Five small applications, each complete: see README.md in this folder."""
