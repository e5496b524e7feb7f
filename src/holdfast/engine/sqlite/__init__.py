"""SQLite: embedded, one file, one machine."""
