"""Programs that tests run and do not bring along: helm, kubectl, a control plane."""

import os
from pathlib import Path

import pytest

from deploy.local.control_plane import MissingBinary, binary
from tests.apiserver import binaries


def program(name: str) -> Path:
    """Where it is: given, installed, or built for the suites on a real API server. Without it the test is skipped on a
    user's machine, and fails in CI.
    """
    try:
        return binary(name)
    except MissingBinary:
        if found := binaries.built(name, os.environ):
            return found
    if os.environ.get("CI"):
        pytest.fail(f"{name} is not installed, and CI skips nothing for that")
    pytest.skip(f"{name} is not installed")
