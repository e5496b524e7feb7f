"""What the tests share: code that is checked as strictly as the library itself."""
