"""Five small applications, each a whole one: see README.md beside this file."""
