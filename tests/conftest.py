"""Which API server the suites run on."""

import pytest
from hypothesis import settings

from tests.support.apiserver import EMBEDDED, REAL

# How long one example takes is a matter of the machine's load, and no property of the code.
# The same examples every time, so that a failure comes from a change; `--hypothesis-profile search` draws others.
settings.register_profile("search", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster",
        choices=(EMBEDDED, REAL),
        default=EMBEDDED,
        help="the embedded API server, or a real control plane from KUBEBUILDER_ASSETS or PATH",
    )


@pytest.fixture(scope="session")
def cluster_kind(request: pytest.FixtureRequest) -> str:
    """The API server that this run is on."""
    return str(request.config.getoption("--cluster"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a real server, what only the embedded one has is left out, for the reason its mark gives."""
    if config.getoption("--cluster") == EMBEDDED:
        return
    for item in items:
        if mark := item.get_closest_marker("embedded_only"):
            item.add_marker(pytest.mark.skip(reason=f"only on the embedded API server: {mark.args[0]}"))
