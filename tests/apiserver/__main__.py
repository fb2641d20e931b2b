"""Prints the folder with the binaries of a real control plane: `python -m tests.apiserver`.

Karpenter is built, too, where it can be; the tests that need it say where it is missing.
"""

import os
import sys

from tests.apiserver import binaries, karpenter_build

if __name__ == "__main__":
    try:
        print(binaries.assets(os.environ))
    except binaries.Unavailable as error:
        sys.exit(f"no real control plane: {error}")
    try:
        karpenter_build.built_karpenter(os.environ)
    except binaries.Unavailable as error:
        print(f"no Karpenter: {error}", file=sys.stderr)
