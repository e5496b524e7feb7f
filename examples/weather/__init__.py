"""Weather maps, made of what forecast centres publish: see README.md beside this file."""
