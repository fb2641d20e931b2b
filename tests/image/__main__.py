"""Builds the programs that the tests of a release need, where they are missing: `python -m tests.image`."""

import os
import sys

from tests.apiserver import binaries
from tests.image import emulator, registry

if __name__ == "__main__":
    try:
        registry.tools(os.environ)
        binaries.built_once(registry.ACTIONLINT, os.environ, folder="image")
        emulator.python(os.environ)
    except binaries.Unavailable as error:
        sys.exit(f"a release cannot be tested here: {error}")
