"""A feed reader: one recurring job for each feed, enabled while it has subscribers."""
