"""A feed reader: one recurring job for each feed, enabled while somebody reads it."""
