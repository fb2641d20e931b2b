"""Prints the folder with the binaries of a real control plane: `python -m tests.apiserver`.

Karpenter and Cluster API are built, too, where they can be; the tests that need them say where they are missing.
"""

import os
import sys

from tests.apiserver import binaries, clusterapi_build, karpenter_build

if __name__ == "__main__":
    try:
        print(binaries.assets(os.environ))
    except binaries.Unavailable as error:
        sys.exit(f"no real control plane: {error}")
    for name, build in (
        ("Karpenter", karpenter_build.built_karpenter),
        ("Cluster API", clusterapi_build.built_cluster_api),
    ):
        try:
            build(os.environ)
        except binaries.Unavailable as error:
            print(f"no {name}: {error}", file=sys.stderr)
