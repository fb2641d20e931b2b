"""The programs of the cluster with their configuration, in the order of their start. All run inside its namespaces."""

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deploy.local import kubeconfig, private
from shared.certificates import issued
from tests.node.images import PROBE
from tests.node.layout import (
    API_IP,
    API_PORT,
    CONTAINERD_SOCKET,
    DNS_IP,
    HOSTS,
    NODES,
    SERVICES,
    Kind,
    Layout,
)
from tests.support import client_certificates

VALID_SECONDS = 365 * 86_400.0
_ETCD = "http://127.0.0.1:2379"
# Controllers for machines that are bought from a cloud, and for pod networks.
_CONTROLLERS = "*,-node-ipam-controller,-service-lb-controller,-node-route-controller,-cloud-node-lifecycle-controller"

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [{"group": "", "resources": ["nodes/status"]}, {"group": "coordination.k8s.io"}],
        },
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Program:
    """One process, started anew whenever it ends."""

    name: str
    command: tuple[str, ...]


def write_nodes_files(layout: Layout) -> None:
    """Everything the node's programs start from."""
    private.write(layout.own / "kubelet.yaml", yaml.safe_dump(_kubelet_configuration(layout)))
    private.write(layout.own / "containerd.toml", _containerd_configuration(layout))
    private.write(layout.own / "network.conflist", json.dumps(_network(layout)))


def write_clusters_files(layout: Layout) -> None:
    """Certificates, kubeconfigs and what else is there once for all nodes."""
    layout.certificates.mkdir(private.DIRECTORY_MODE)
    pair = issued(HOSTS, time.time(), VALID_SECONDS)
    private.write(layout.certificates / "apiserver.crt", pair.chain)
    private.write(layout.certificates / "apiserver.key", pair.key)
    private.write(layout.ca_file, pair.authority)
    authority = client_certificates.ClientAuthority(layout.certificates)
    for name, user, group in (
        ("kube-controller-manager", "system:kube-controller-manager", ""),
        ("kube-scheduler", "system:kube-scheduler", ""),
        *((f"kubelet-{node}", f"system:node:{node}", "system:nodes") for node in NODES),
    ):
        credentials = client_certificates.certificate_user(*authority.issued(user, group))
        kubeconfig.write_for(layout.kubeconfig(name), f"https://{API_IP}", credentials, layout.ca_file)
    certificate, key = authority.issued("kube-apiserver-kubelet-client", "system:masters")
    private.write(layout.certificates / "kubelet-client.crt", certificate)
    private.write(layout.certificates / "kubelet-client.key", key)
    private.write(layout.directory / "tokens.csv", f'{layout.token},admin,admin,"system:masters"\n')
    kubeconfig.write(layout.kubeconfig("admin"), layout.server, layout.token, layout.ca_file)
    command = ["openssl", "genrsa", "-out", str(layout.directory / "service-accounts.key"), "2048"]
    subprocess.run(command, check=True, capture_output=True)
    private.write(layout.directory / "audit.yaml", yaml.safe_dump(_AUDIT_POLICY))


def control_plane(layout: Layout) -> list[Program]:
    """What runs once for all nodes."""
    assets, folder, certificates = layout.assets, layout.directory, layout.certificates
    return [
        Program(
            "etcd",
            (
                f"{assets}/etcd",
                f"--data-dir={folder}/etcd",
                f"--listen-client-urls={_ETCD}",
                f"--advertise-client-urls={_ETCD}",
                "--listen-peer-urls=http://127.0.0.1:2380",
                "--unsafe-no-fsync",
            ),
        ),
        Program(
            "kube-apiserver",
            (
                f"{assets}/kube-apiserver",
                f"--etcd-servers={_ETCD}",
                f"--advertise-address={API_IP}",
                f"--secure-port={API_PORT}",
                f"--tls-cert-file={certificates}/apiserver.crt",
                f"--tls-private-key-file={certificates}/apiserver.key",
                f"--client-ca-file={certificates}/clients.crt",
                f"--kubelet-client-certificate={certificates}/kubelet-client.crt",
                f"--kubelet-client-key={certificates}/kubelet-client.key",
                "--kubelet-preferred-address-types=InternalIP",
                f"--token-auth-file={folder}/tokens.csv",
                f"--service-account-key-file={folder}/service-accounts.key",
                f"--service-account-signing-key-file={folder}/service-accounts.key",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-cluster-ip-range={SERVICES}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--enable-aggregator-routing",  # webhooks are called at their endpoints: no proxy carries Services
                f"--audit-policy-file={folder}/audit.yaml",
                f"--audit-log-path={layout.logs}/audit.log",
                "--profiling=false",
            ),
        ),
        Program(
            "kube-controller-manager",
            (
                f"{assets}/kube-controller-manager",
                f"--kubeconfig={layout.kubeconfig('kube-controller-manager')}",
                f"--service-account-private-key-file={folder}/service-accounts.key",
                f"--root-ca-file={layout.ca_file}",
                f"--controllers={_CONTROLLERS}",
                "--use-service-account-credentials",
                "--leader-elect=false",
            ),
        ),
        Program(
            "kube-scheduler",
            (
                f"{assets}/kube-scheduler",
                f"--kubeconfig={layout.kubeconfig('kube-scheduler')}",
                "--leader-elect=false",
            ),
        ),
    ]


def of_node(layout: Layout) -> list[Program]:
    return [
        Program("containerd", ("containerd", f"--config={layout.own}/containerd.toml")),
        Program(
            "kubelet",
            (
                f"{layout.assets}/kubelet",
                f"--kubeconfig={layout.kubeconfig(f'kubelet-{layout.node}')}",
                f"--config={layout.own}/kubelet.yaml",
                f"--hostname-override={layout.node}",
                f"--node-ip={layout.node_ip}",
                f"--cert-dir={layout.own}/kubelet-certificates",
            ),
        ),
    ]


def _network(layout: Layout) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": layout.pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _kubelet_configuration(layout: Layout) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{layout.certificates}/clients.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "systemd" if layout.kind is Kind.SYSTEMD else "cgroupfs",
        "failCgroupV1": layout.kind is not Kind.V1,
        "failSwapOn": False,
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_IP],
        "resolvConf": "",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "kubeReserved": {"cpu": "10m", "memory": "256Mi"},  # a rollout of ours takes nearly all of one CPU
        "imageGCHighThresholdPercent": 100,  # nobody could pull an image again
        "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "2s",
        "serializeImagePulls": False,
        "syncFrequency": "10s",
    }


def _containerd_configuration(layout: Layout) -> str:
    systemd = str(layout.kind is Kind.SYSTEMD).lower()
    spec = f'base_runtime_spec = "{layout.own}/runtime-spec.json"' if layout.kind is Kind.V1 else ""
    # Without CAP_SYS_RESOURCE nobody may lower `oom_score_adj`, and every sandbox would die of trying to.
    restricted = str(not may_lower_oom_scores()).lower()
    return f"""
version = 2
root = "{layout.disk}/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PROBE}"
  restrict_oom_score_adj = {restricted}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      {spec}
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = {systemd}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"""


def may_lower_oom_scores() -> bool:
    """Whether this process has CAP_SYS_RESOURCE (bit 24)."""
    status = Path("/proc/self/status").read_text().splitlines()
    held = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff"))
    return bool(held >> 24 & 1)
