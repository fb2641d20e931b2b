"""Karpenter's mix as it is measured: the command places all pods of it, and a missing peer is named in the row."""

import json
from pathlib import Path

import pytest

from deploy import plan
from tests.apiserver.binaries import Unavailable
from tests.bench import karpenter_mix, karpenter_peer


@pytest.mark.parametrize("owned", [True, False])
def test_the_measured_command_places_every_pod_of_the_mix(tmp_path: Path, owned: bool) -> None:
    pods = karpenter_mix.diverse_pods(50, owned=owned)
    command, *arguments = karpenter_mix.plan_command(tmp_path, pods)
    found = json.loads(plan.main(arguments))
    assert command == "plan"
    assert sum(row["count"] for row in found["pending"]) == len(pods)
    assert found["unplaced"] == []


def test_a_peer_that_cannot_be_built_is_named_in_the_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(Unavailable):
        karpenter_peer.cpu_seconds(1_000)
    baseline, seconds = karpenter_mix._baseline(karpenter_mix.diverse_pods(10, owned=True))
    assert seconds > 0
    assert baseline.startswith(karpenter_mix.WITHOUT_GO)
    assert "in place of the peer's own code: the source of karpenter cannot be had" in baseline
