"""Cron in every time zone, compared with an oracle that walks through real time."""
