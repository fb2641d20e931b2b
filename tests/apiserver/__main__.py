"""Prints the folder with the binaries of a real control plane: `python -m tests.apiserver`."""

import os
import sys

from tests.apiserver import binaries

if __name__ == "__main__":
    try:
        print(binaries.assets(os.environ))
    except binaries.Unavailable as error:
        sys.exit(f"no real control plane: {error}")
