"""Which tests a change touches."""

import grimp
import pytest

from tests.support import quick
from tests.support.apiserver import ROOT


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*quick.PACKAGES)


def test_those_that_import_what_is_changed_and_the_nearer_the_sooner(graph: grimp.ImportGraph) -> None:
    found = quick.touched(["shared/quantity.py"], graph)
    assert found["tests/unit/shared/test_quantity.py"] == 1
    assert found["tests/integration/manager/test_manager.py"] > 0
    assert "tests/image/test_locked.py" not in found


def test_a_changed_test_is_run_itself_and_all_beside_a_changed_conftest(graph: grimp.ImportGraph) -> None:
    assert quick.touched(["tests/unit/shared/test_clock.py"], graph) == {"tests/unit/shared/test_clock.py": 0}
    assert set(quick.touched(["tests/unit/kube/conftest.py"], graph)) > {"tests/unit/kube/test_client.py"}


@pytest.mark.parametrize(
    ("file", "reader"),
    [
        ("deploy/helm/headroom/values.yaml", "tests/chart/test_render.py"),
        ("deploy/Dockerfile", "tests/image/test_dockerfile.py"),
        ("tests/conformance/data/histogram.json", "tests/conformance/test_conformance.py"),
    ],
)
def test_what_is_no_module_has_its_readers(graph: grimp.ImportGraph, file: str, reader: str) -> None:
    assert reader in quick.touched([file], graph)


@pytest.mark.parametrize("file", ["README.md", "agent/gone.py"])
def test_what_no_test_reads_touches_none(graph: grimp.ImportGraph, file: str) -> None:
    assert not quick.touched([file], graph)


def test_what_is_known_to_be_read_by_tests_is_there() -> None:
    for path in (*quick.READERS, *quick.READERS.values(), *quick.LEFT_OUT):
        assert (ROOT / path).exists(), path


def test_the_nearest_that_fit_into_the_time_are_chosen_and_a_changed_one_anyhow() -> None:
    distances = {"changed.py": 0, "near.py": 1, "long.py": 1, "far.py": 5, "farther.py": 6, "farthest.py": 7}
    seconds = {"changed.py": 20.0, "near.py": 5.0, "long.py": quick.FILE_SECONDS + 1, "far.py": 10.0, "farther.py": 6.0}
    assert list(quick.chosen(distances, seconds)) == ["changed.py", "near.py", "far.py", "farthest.py"]
