"""Programs that tests run and do not bring along: helm, kubectl, a control plane."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

from deploy.local.control_plane import MissingBinary, binary
from tests.apiserver import binaries


def program(name: str) -> Path:
    """Where it is: given, installed, or built for the suites on a real API server."""
    try:
        return binary(name)
    except MissingBinary:
        found = binaries.built(name, os.environ)
    if found is None:
        do_without(f"{name} is not installed")
    return found


def do_without(reason: str) -> NoReturn:
    """Ends the test: it is skipped on a user's machine, and fails in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and CI skips nothing for that")
    pytest.skip(reason)
