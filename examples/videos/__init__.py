"""Videos that are uploaded and made ready for browsers: see README.md beside this file."""
