"""A media manager: finds films, and puts what is known about them beside them. See README.md."""
