"""The documentation site: what `docs/` cannot say by hand, read from the code when `make docs` builds it."""
