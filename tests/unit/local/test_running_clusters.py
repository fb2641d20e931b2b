"""`headroom top` and `headroom page` beside a `headroom up`: they find it, unless another cluster is named."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local import home, private
from deploy.local.home import Home
from tests.support.command_line import Run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Home]]:
    """Claims a cluster for this process, which answers at the given URL."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    made: list[Home] = []

    def claim(manager_url: str) -> Home:
        found = home.claim(tmp_path / f"kept-{len(made)}")
        made.append(found)
        if manager_url:
            private.write(found.manager_file, manager_url)
        return found

    yield claim
    for each in made:
        home.clear(each.claim)


@pytest.mark.parametrize("command", [("top", "-o", "name"), ("page", "--no-browser")])
def test_the_one_local_cluster_that_runs_is_found(
    command: tuple[str, ...], headroom: Run, runs: Callable[[str], Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = runs("http://127.0.0.1:1")
    runs("")  # it has not chosen its ports yet
    said = headroom(*command).err
    assert f"headroom: the local cluster {cluster.cluster_id}; --kubeconfig or --manager names another" in said
    assert "no answer of a manager from http://127.0.0.1:1/" in said
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    assert "no answer of a manager from http://127.0.0.1:1/" in headroom(*command).err


def test_a_cluster_that_is_named_goes_before_a_local_one(
    headroom: Run, runs: Callable[[str], Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs("http://127.0.0.1:1")
    assert "http://127.0.0.1:2/" in headroom("top", "-o", "name", "--manager", "http://127.0.0.1:2").err
    for arguments in (("--kubeconfig", tmp_path / "other"), ("--context", "other")):
        assert "local cluster" not in headroom("top", "-o", "name", *arguments).err
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "other"))
    assert "local cluster" not in headroom("top", "-o", "name").err


def test_of_several_local_clusters_one_has_to_be_named(headroom: Run, runs: Callable[[str], Home]) -> None:
    runs("http://127.0.0.1:1")
    runs("http://127.0.0.1:2")
    done = headroom("top", "-o", "name")
    assert done.status == 2
    assert "2 local clusters run, so that one has to be named: http://127.0.0.1:" in done.err


def test_a_cluster_whose_owner_has_ended_does_not_run(headroom: Run, runs: Callable[[str], Home]) -> None:
    cluster = runs("http://127.0.0.1:1")
    (claim_file,) = home.claims_dir().glob("*.json")
    claim_file.write_text(claim_file.read_text().replace('"owner_started":', '"owner_started":1'))
    assert home.running() == []
    assert cluster.manager_file.exists()
