"""Prints the folder with the binaries of a real control plane: `python -m tests.apiserver`.

Karpenter, Cluster API and oauth2-proxy are built, too, where they can be; the tests that need them say where they are
missing. With names of programs, only those are found or built, and what cannot be had is said.
"""

import functools
import os
import sys
from collections.abc import Sequence

from tests.apiserver import binaries, clusterapi_build, karpenter_build


def _provide(names: Sequence[str]) -> None:
    for name in names:
        try:
            binaries.provided(name, os.environ)
        except binaries.Unavailable as error:
            print(f"no {name}: {error}", file=sys.stderr)


def _build_all() -> None:
    try:
        print(binaries.assets(os.environ))
    except binaries.Unavailable as error:
        sys.exit(f"no real control plane: {error}")
    for name, build in (
        ("Karpenter", karpenter_build.built_karpenter),
        ("Cluster API", clusterapi_build.built_cluster_api),
        ("oauth2-proxy", functools.partial(binaries.built_once, binaries.OAUTH2_PROXY)),
    ):
        try:
            build(os.environ)
        except binaries.Unavailable as error:
            print(f"no {name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:]:
        _provide(sys.argv[1:])
    else:
        _build_all()
