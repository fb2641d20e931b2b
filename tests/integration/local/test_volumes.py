"""Volumes of real processes: what they see where, as whom, and what becomes of it while they run."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploy.local.kubelet import process
from deploy.local.kubelet.containment import Containment, TreeContainment
from deploy.local.kubelet.enter import Plan
from deploy.local.kubelet.environment import of_server
from deploy.local.kubelet.powers import Powers
from deploy.local.kubelet.runner import Machine
from deploy.local.kubelet.sources import SECRETS, ApiSources, Sources
from deploy.local.kubelet.wire import (
    Capabilities,
    ConfigMapVolume,
    DownwardFile,
    DownwardVolume,
    EmptyDirVolume,
    HostPathVolume,
    KeyToPath,
    ObjectFieldSelector,
    PodSecurityContext,
    RunnableContainer,
    RunnablePod,
    SecretVolume,
    SecurityContext,
    Volume,
    VolumeMount,
)
from shared.kube.resources import CONFIGMAPS, PODS
from tests.integration.local.pods import Harness, a_pod
from tests.support import eventually
from tests.support.apiserver import ApiServer

USER = 65532
SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"

# Asks the API server who we are, with what every pod finds mounted.
WHO_AM_I = f"""
import json, os, ssl, urllib.request
mounted = "{SERVICE_ACCOUNT_DIR}/"
url = "https://" + os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
body = {{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}}
headers = {{"Authorization": "Bearer " + open(mounted + "token").read(), "Content-Type": "application/json"}}
request = urllib.request.Request(
    url + "/apis/authentication.k8s.io/v1/selfsubjectreviews", json.dumps(body).encode(), headers
)
context = ssl.create_default_context(cafile=mounted + "ca.crt")
print(json.load(urllib.request.urlopen(request, context=context))["status"]["userInfo"]["username"])
"""


@pytest.fixture
def held() -> Containment:
    return TreeContainment()


@pytest.fixture
def sources(server: ApiServer) -> Sources:
    return ApiSources(server.client().single_attempt())


@pytest.fixture
def namespace(server: ApiServer) -> str:
    return server.add_namespace()


@pytest.fixture
def mounting(machine: Machine) -> None:
    if not machine.powers.mounts:
        pytest.skip("nothing can be mounted on this machine")


@pytest.fixture
def switching(mounting: None, machine: Machine) -> None:
    if not machine.powers.users:
        pytest.skip("no other user can be had on this machine")


def pod_with(
    volume: Volume,
    *command: str,
    namespace: str = "default",
    at: str = "/volume",
    read_only: bool = False,
    sub_path: str = "",
    own: SecurityContext | None = None,
    shared: PodSecurityContext | None = None,
    init: tuple[RunnableContainer, ...] = (),
) -> RunnablePod:
    pod = a_pod(*command, policy="Never", init=init)
    mount = VolumeMount(volume.name, at, read_only, sub_path)
    main = msgspec.structs.replace(
        pod.spec.containers[0], volume_mounts=(mount,), security_context=own or SecurityContext()
    )
    spec = msgspec.structs.replace(
        pod.spec, containers=(main,), volumes=(volume,), security_context=shared or PodSecurityContext()
    )
    return RunnablePod(msgspec.structs.replace(pod.metadata, namespace=namespace), spec)


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def ended(harness: Harness) -> str:
    """The pod's output once it has succeeded."""
    status = harness.until(lambda status: status["phase"] in ("Succeeded", "Failed"))
    assert status["phase"] == "Succeeded", harness.log() + harness.messages()
    return harness.log()


def create(server: ApiServer, namespace: str, name: str, **data: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    server.client().create(CONFIGMAPS, body, namespace)


Run = Callable[..., Harness]


@pytest.mark.usefixtures("mounting")
def test_a_config_map_is_mounted_where_the_host_has_nothing(run: Run, server: ApiServer, namespace: str) -> None:
    create(server, namespace, "settings", **{"a.txt": "hello"})
    volume = Volume("v", config_map=ConfigMapVolume("settings"))
    path = "/var/lib/headroom-test/deep"
    pod = pod_with(volume, *shell(f"cat {path}/a.txt; echo x >{path}/b"), namespace=namespace, at=path)
    status = run(pod=pod).until(lambda status: status["phase"] == "Failed")  # what the kubelet writes is read-only
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] != 0
    assert not Path("/var/lib/headroom-test").exists()


@pytest.mark.usefixtures("mounting")
def test_a_secret_is_mounted_with_its_keys_paths_and_modes(run: Run, server: ApiServer, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "dmFsdWU="}}
    server.client().create(SECRETS, body, namespace)
    volume = Volume("v", secret=SecretVolume("s", (KeyToPath("k", "x/y", mode=0o400),)))
    pod = pod_with(volume, *shell("cat /volume/x/y; stat -Lc %a /volume/x/y"), namespace=namespace)
    assert ended(run(pod=pod)) == "value400\n"


@pytest.mark.usefixtures("mounting")
def test_one_file_of_a_volume_can_be_mounted_alone(run: Run, server: ApiServer, namespace: str) -> None:
    create(server, namespace, "settings", key="alone")
    volume = Volume("v", config_map=ConfigMapVolume("settings"))
    pod = pod_with(volume, "cat", "/etc/alone", namespace=namespace, at="/etc/alone", sub_path="key")
    assert ended(run(pod=pod)) == "alone"
    assert not Path("/etc/alone").exists()


@pytest.mark.usefixtures("mounting")
def test_a_pod_reads_its_own_fields_from_files(run: Run) -> None:
    item = DownwardFile("namespace", ObjectFieldSelector("metadata.namespace"))
    pod = pod_with(Volume("v", downward_api=DownwardVolume((item,))), "cat", "/volume/namespace")
    assert ended(run(pod=pod)) == "default"


@pytest.mark.usefixtures("mounting")
def test_what_is_not_there_yet_holds_the_container_up_and_is_said(run: Run, server: ApiServer, namespace: str) -> None:
    volume = Volume("v", config_map=ConfigMapVolume("later"))
    harness = run(pod=pod_with(volume, "cat", "/volume/key", namespace=namespace))
    state = harness.container()["state"]
    assert state["waiting"]["reason"] == "ContainerCreating"
    assert harness.reasons() == ["FailedMount"]
    assert 'configmap "later" not found' in harness.messages()
    create(server, namespace, "later", key="arrived")
    harness.now += 60
    assert ended(harness) == "arrived"


@pytest.mark.usefixtures("mounting")
def test_a_changed_config_map_shows_in_a_container_that_runs(run: Run, server: ApiServer, namespace: str) -> None:
    create(server, namespace, "settings", key="old")
    volume = Volume("v", config_map=ConfigMapVolume("settings"))
    script = "grep old /volume/key; until grep -q new /volume/key; do sleep 0.02; done; echo seen"
    harness = run(pod=pod_with(volume, *shell(script), namespace=namespace))
    harness.until(lambda _: "old" in harness.log())
    server.client().patch(CONFIGMAPS, "settings", {"data": {"key": "new"}}, namespace)
    harness.now += 61
    assert ended(harness).endswith("seen\n")


@pytest.mark.usefixtures("mounting")
def test_an_empty_dir_is_shared_by_the_containers_and_goes_with_the_pod(run: Run) -> None:
    mount = VolumeMount("v", "/shared")
    first = RunnableContainer(name="init", command=shell("echo written >/shared/file"), volume_mounts=(mount,))
    pod = pod_with(Volume("v", empty_dir=EmptyDirVolume()), "cat", "/shared/file", at="/shared", init=(first,))
    harness = run(pod=pod)
    assert ended(harness) == "written\n"
    directory = harness.machine.volumes_dir(pod.metadata.uid)
    assert directory.exists()
    harness.runner.forget()
    assert not directory.exists()


@pytest.mark.usefixtures("mounting")
def test_a_folder_of_the_host_is_made_and_mounted_and_stays(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "host" / "folder"
    volume = Volume("v", host_path=HostPathVolume(str(path), "DirectoryOrCreate"))
    ended(run(pod=pod_with(volume, *shell("echo kept >/volume/file"))))
    assert (path / "file").read_text() == "kept\n"


def test_a_folder_of_the_host_that_has_to_be_there_is_missed(run: Run, tmp_path: Path) -> None:
    volume = Volume("v", host_path=HostPathVolume(str(tmp_path / "absent"), "Directory"))
    harness = run(pod=pod_with(volume, "true"))
    assert "waiting" in harness.container()["state"]
    assert "is not a directory" in harness.messages()


@pytest.mark.usefixtures("switching")
def test_a_read_only_mount_takes_no_writes_in_the_mounts_below_it_either(run: Run) -> None:
    volume = Volume("v", host_path=HostPathVolume("/sys/fs/cgroup", "Directory"))
    script = "ls /host/cgroup >/dev/null && ! mkdir $(find /host/cgroup -maxdepth 2 -type d | tail -1)/x 2>/dev/null"
    ended(run(pod=pod_with(volume, *shell(script), at="/host/cgroup", read_only=True)))
    assert not Path("/host/cgroup").exists()


@pytest.mark.usefixtures("switching")
def test_a_hardened_container_is_who_it_should_be_and_may_write_to_its_volumes_alone(run: Run) -> None:
    own = SecurityContext(
        run_as_non_root=True,
        read_only_root_filesystem=True,
        allow_privilege_escalation=False,
        capabilities=Capabilities(drop=("ALL",)),
    )
    script = """
        echo "$(id -u) $(id -g) $(id -G)"
        grep -E 'CapBnd|CapEff|NoNewPrivs' /proc/self/status
        touch /volume/ours && stat -c %g /volume/ours
        touch /tmp/not-ours /etc/not-ours ./not-ours 2>/dev/null || echo refused
        ls -A
    """
    shared = PodSecurityContext(run_as_user=USER, run_as_group=USER, fs_group=7)
    pod = pod_with(Volume("v", empty_dir=EmptyDirVolume()), *shell(script), own=own, shared=shared)
    none = "0000000000000000"
    assert ended(run(pod=pod)).split("\n")[:-1] == [
        f"{USER} {USER} {USER} 7",
        f"CapEff:\t{none}",
        f"CapBnd:\t{none}",
        "NoNewPrivs:\t1",
        "7",
        "refused",
    ]


@pytest.mark.usefixtures("switching")
def test_an_init_container_may_keep_the_one_capability_it_needs(run: Run) -> None:
    mount = VolumeMount("v", "/state")
    first = RunnableContainer(
        name="chown",
        command=("chown", f"{USER}:{USER}", "/state"),
        volume_mounts=(mount,),
        security_context=SecurityContext(
            run_as_user=0, capabilities=Capabilities(drop=("ALL",), add=("CHOWN",)), read_only_root_filesystem=True
        ),
    )
    shared = PodSecurityContext(run_as_user=USER, run_as_group=USER)
    volume = Volume("v", empty_dir=EmptyDirVolume())
    pod = pod_with(volume, "stat", "-c", "%u", "/state", at="/state", shared=shared, init=(first,))
    assert ended(run(pod=pod)) == f"{USER}\n"


@pytest.mark.usefixtures("switching")
def test_any_user_finds_python_and_this_product_as_in_an_image(run: Run) -> None:
    shared = PodSecurityContext(run_as_user=USER)
    script = "import sys, numpy, manager.main; print(sys.executable)"
    pod = pod_with(Volume("v", empty_dir=EmptyDirVolume()), "python", "-c", script, shared=shared)
    assert Path(ended(run(pod=pod)).strip()).parent == Path(sys.executable).parent


@pytest.mark.usefixtures("switching")
def test_folders_below_a_closed_one_are_shown_to_a_user_who_may_not_see_the_rest(
    machine: Machine, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    shown = [closed / "a" / "first", closed / "b" / "second"]
    for folder in (*shown, closed / "hidden"):
        folder.mkdir(parents=True)
    closed.chmod(0o700)
    plan = Plan("/", told=-1, stage=str(machine.powers.stage), reachable=list(map(str, shown)), user=USER, group=USER)
    code, output = process.run(["ls", str(closed), *map(str, shown)], plan, os.environ, 10)
    assert code == 0, output
    assert b"hidden" not in output


@pytest.mark.usefixtures("mounting")
def test_a_container_that_is_killed_leaves_no_mount_behind(run: Run) -> None:
    def mounts() -> list[str]:
        return Path("/proc/self/mountinfo").read_text().splitlines()

    before = mounts()
    harness = run(pod=pod_with(Volume("v", empty_dir=EmptyDirVolume()), "sleep", "1000"))
    harness.sync()
    eventually(harness.pids)
    assert mounts() == before
    assert harness.runner.terminate(0, harness.now)
    harness.runner.forget()
    assert not harness.machine.work_dir(harness.pod.metadata.uid).exists()


def test_where_nothing_can_be_mounted_volumes_lie_below_the_working_directory(
    run: Run, machine: Machine, server: ApiServer, namespace: str
) -> None:
    create(server, namespace, "settings", key="linked")
    volume = Volume("v", config_map=ConfigMapVolume("settings"))
    pod = pod_with(volume, "cat", "etc/settings/key", namespace=namespace, at="/etc/settings")
    harness = Harness(pod, replace(machine, powers=Powers(stage=None, users=False)))
    assert ended(harness) == "linked"
    assert "VolumesNotMounted" in harness.reasons()
    assert "/etc/settings" in harness.messages()


def admitted(server: ApiServer, namespace: str, *command: str) -> RunnablePod:
    """The pod as the API server has admitted it, with the volume that holds its token."""
    container = {
        "name": "main",
        "image": "none",
        "command": list(command),
        "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsUser": USER, "runAsGroup": USER} if os.geteuid() == 0 else {}
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "caller", "namespace": namespace},
        "spec": {
            "containers": [container],
            "securityContext": security,
            "restartPolicy": "Never",
            "schedulerName": "nobody",
        },
    }
    server.client().create(PODS, body, namespace)
    return server.client().get(PODS, "caller", namespace, into=RunnablePod)


@pytest.mark.real_only("the embedded one signs no tokens")
@pytest.mark.usefixtures("mounting")
def test_a_pod_speaks_to_the_api_server_with_the_token_it_finds_mounted(
    machine: Machine, server: ApiServer, namespace: str
) -> None:
    pod = admitted(server, namespace, sys.executable, "-c", WHO_AM_I)
    harness = Harness(pod, replace(machine, variables=of_server(server.url)))
    assert ended(harness) == f"system:serviceaccount:{namespace}:default\n"


@pytest.mark.real_only("the embedded one signs no tokens")
@pytest.mark.usefixtures("mounting")
def test_a_token_is_replaced_under_the_process_that_uses_it(run: Run, server: ApiServer, namespace: str) -> None:
    token = f"{SERVICE_ACCOUNT_DIR}/token"
    script = (
        f'first=$(cat {token}); echo read; while [ "$first" = "$(cat {token})" ]; do sleep 0.02; done; echo renewed'
    )
    harness = run(pod=admitted(server, namespace, *shell(script)))
    harness.until(lambda _: "read" in harness.log())
    harness.now = time.time() + 3600 * 0.9
    assert ended(harness).endswith("renewed\n")
