"""What `headroom up` keeps is its owner's alone, and one cluster's at a time."""

import os
import stat
from pathlib import Path

from tests.e2e.conftest import RunningCluster, pods_run, run_up


def test_keep_dir_store_logs_kubeconfig_tokens_and_work_folders_are_private(cluster: RunningCluster) -> None:
    state = cluster.directory / "state"
    pods_run(cluster)
    shared_with_pods = state / "kubelet" / "volumes"
    seen = set()
    for top, folders, files in os.walk(state):
        for path in (Path(top), *(Path(top) / name for name in files)):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue  # replaced while we look
            if not stat.S_ISLNK(mode):
                assert not mode & 0o077, f"{path} has mode {stat.S_IMODE(mode):o}"
                seen.add(path.name)
        if Path(top) == shared_with_pods:
            folders.clear()  # what is in it has the modes that its pods need; the folder itself keeps others out
    assert {"kubeconfig", "token", "logs", "manager.log", "kubelet", "work", "agent"} <= seen


def test_a_directory_in_use_is_refused_in_one_line(cluster: RunningCluster) -> None:
    done = run_up("--keep", str(cluster.directory / "state"), runtime_dir=cluster.directory)
    assert done.returncode == 2
    assert done.stderr.strip().endswith(f"in use by the headroom up with pid {cluster.process.pid}")
