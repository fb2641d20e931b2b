"""Programs that tests run and do not bring along: helm, kubectl, a control plane."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

from deploy.local.control_plane import MissingBinary, binary
from tests.apiserver import binaries

NOT_INSTALLED = "is not installed: "
_BUILT_BY_GO = "`make assets` builds it where Go {go} is"
_HOW = {
    "helm": "install Helm 4, or Go {go}, with which `make test` builds it",
    "kubectl": f"install it, or {_BUILT_BY_GO}",
}


def how_to_get(name: str) -> str:
    """What brings the program onto this machine."""
    needed = ".".join(map(str, binaries.needed_go("helm")))
    return _HOW.get(name, _BUILT_BY_GO).format(go=needed)


def program(name: str) -> Path:
    """Where it is: given, installed, or built for the suites on a real API server."""
    try:
        return binary(name)
    except MissingBinary:
        found = binaries.built(name, os.environ)
    if found is None:
        do_without(f"{name} {NOT_INSTALLED}{how_to_get(name)}")
    return found


def do_without(reason: str) -> NoReturn:
    """Ends the test: it is skipped on a user's machine, and fails in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and CI skips nothing for that")
    pytest.skip(reason)
