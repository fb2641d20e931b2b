"""The documentation site: what `docs/` cannot say by hand, read from the code when `make docs` builds it."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
