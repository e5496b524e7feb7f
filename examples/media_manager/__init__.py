"""A media manager: finds films, and stores their metadata and pictures beside them. See README.md."""
