"""The manager as a process: it starts from a kubeconfig, ends on SIGTERM, and refuses settings in one line."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shared.kube.resources import LEASES
from tests.integration.manager.conftest import Cluster
from tests.integration.manager.process import START_SECONDS
from tests.support import daemons, eventually
from tests.support.apiserver import ROOT, ApiServer, write_kubeconfig
from tests.support.local_http import LOCAL_HTTP


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Path) -> str:
    return str(write_kubeconfig(tmp_path / "kubeconfig", server.manager_connection()))


def test_the_process_works_until_sigterm_and_gives_its_lease_up(
    kubeconfig: str, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.configure()
    cluster.add_node("n1")
    log = tmp_path / "log"
    command = [sys.executable, "-m", "manager", "--kubeconfig", kubeconfig, "--namespace", cluster.namespace]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], cwd=ROOT, stderr=output)

    def url() -> str:
        lines = map(json.loads, log.read_text().split("\n")[:-1])  # the last one may be half written
        return next((line["url"] for line in lines if line["msg"] == "manager started"), "")

    try:
        eventually(lambda: cluster.has_metric("n1"), START_SECONDS)
        assert LOCAL_HTTP.get(f"{eventually(url)}/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
    lease = cluster.client.list(LEASES, cluster.namespace).items[0]
    assert not lease["spec"].get("holderIdentity")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--writes-per-second", "0"], r"--writes-per-second: writesPerSecond: 0.*> 0"),
        (["--listen", "nowhere"], r"listen: 'nowhere'"),
        (["--renew-deadline", "20s"], r"leaseDuration: 15: .*lease > renew deadline"),
        (["--kubeconfig", "/does/not/exist"], r"kubeconfig: .*/does/not/exist"),
    ],
)
def test_settings_that_mean_nothing_end_it_with_one_line(kubeconfig: str, flags: list[str], complaint: str) -> None:
    found = daemons.run("manager", "--kubeconfig", kubeconfig, "--log-level", "error", *flags)
    assert found.returncode == 2
    assert re.search(complaint, found.stderr), found.stderr
    assert len(found.stderr.splitlines()) == 1
