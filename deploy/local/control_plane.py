"""A real Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager and optionally kube-scheduler.

The binaries are in the folder that KUBEBUILDER_ASSETS names (envtest's convention), or on PATH. Everything listens on
loopback; TLS, RBAC, service-account tokens and the default admission plugins are on.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from deploy.local import kubeconfig, ports, private
from deploy.local.identities import CHART, RELEASE
from deploy.local.ports import LOOPBACK
from deploy.local.supervisor import Program
from shared import names
from shared.errors import HeadroomError

ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER = "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"
VARIABLE_ASSETS = "KUBEBUILDER_ASSETS"

# Controllers for cloud machines and for pod networks, which do not exist here.
_CONTROLLERS = "*,-node-ipam-controller,-service-lb-controller,-node-route-controller,-cloud-node-lifecycle-controller"


# The processes run beside the cluster, so the chart installs the workloads without pods; `up` writes the policy, and
# the local cluster registers a webhook on this machine.
_VALUES = (
    "image.repository=headroom",  # unused, as no pod is created
    "manager.replicas=0",
    f"agent.nodeSelector.{names.LABEL_SIMULATED.replace('.', chr(92) + '.')}=no",
    "manager.webhook.register=false",
    "colocationConfig.create=false",
    "priorityClasses.tiers=false",  # created beside Koordinator's bands, as on the embedded one
    "rbac.eviction=true",
    "manager.autoscaler.cloudProvider=simulated",
    "manager.settings.capacityQuotasEnabled=true",
    "manager.settings.capacityBufferPodInjectionEnabled=true",
    "manager.settings.enableProvisioningRequests=true",
)


class ChartNotInstalled(HeadroomError):
    """Helm reported an error."""


class MissingBinary(HeadroomError):
    """A component of the control plane is not installed."""


def binary(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The path of the program. Raises MissingBinary."""
    assets = environment.get(VARIABLE_ASSETS, "")
    found = shutil.which(name, path=assets) or shutil.which(name, path=environment.get("PATH"))
    if found is None:
        raise MissingBinary(f"{name} is neither in {VARIABLE_ASSETS} ({assets or 'not set'}) nor on PATH")
    return Path(found)


@dataclass(frozen=True)
class ControlPlane:
    """One control plane in `directory`.

    `durable`: etcd waits for the disk, as persistent state requires; `scheduler`: kube-scheduler runs as well, and
    calls the manager at `manager_url`, if there is one, as an extender.
    """

    directory: Path
    port: int
    admin_token: str
    durable: bool = True
    scheduler: bool = False
    manager_url: str = ""
    etcd_port: int = field(default_factory=ports.free)

    @property
    def server(self) -> str:
        return f"https://{LOOPBACK}:{self.port}"

    @property
    def ca_file(self) -> Path:
        """The file that verifies the API server's certificate; exists once the server serves."""
        return self._certificates / "apiserver.crt"

    @property
    def serving_key(self) -> Path:
        return self._certificates / "apiserver.key"

    @property
    def kubelet_certificate(self) -> tuple[str, ...]:
        """The API server's own certificate, which it also accepts from a kubelet on the same machine."""
        return (f"--tls-cert-file={self.ca_file}", f"--tls-private-key-file={self.serving_key}")

    def component_kubeconfig(self, component: str) -> Path:
        """The kubeconfig of a control-plane component."""
        return self.directory / f"{component}.kubeconfig"

    def prepare(self, admin: Path) -> None:
        """Installs or upgrades the chart as the administrator. Raises MissingBinary, ChartNotInstalled."""
        command = [str(binary("helm")), "upgrade", "--install", RELEASE, str(CHART)]
        command += ["--namespace", names.INSTALL_NAMESPACE, "--create-namespace"]
        for value in _VALUES:
            command += ["--set-string" if value.startswith("agent") else "--set", value]
        environment = os.environ | {"KUBECONFIG": str(admin)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ChartNotInstalled(f"helm could not install the chart: {done.stderr.strip()}")

    def programs(self) -> list[Program]:
        """etcd and kube-apiserver; writes the files they start from. Raises MissingBinary."""
        self._write_keys()
        # etcd has a single member, so any address for members works.
        etcd_address = f"http://{LOOPBACK}:{self.etcd_port}"
        etcd = (
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={etcd_address}",
            f"--advertise-client-urls={etcd_address}",
            f"--listen-peer-urls=http://{LOOPBACK}:0",
            *(() if self.durable else ("--unsafe-no-fsync",)),
        )
        apiserver = (
            f"--etcd-servers={etcd_address}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self.port}",
            f"--cert-dir={self._certificates}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            f"--service-account-key-file={self._signing_key}",
            f"--service-account-signing-key-file={self._signing_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=Node,RBAC",
            "--endpoint-reconciler-type=none",  # it would publish loopback, which the API refuses
            "--enable-aggregator-routing",  # webhooks are called at their endpoints: no network carries Services
            "--profiling=false",
        )
        return [_program(ETCD, etcd), _program(APISERVER, apiserver)]

    def controllers(self) -> list[Program]:
        """The controllers, to be started once the API server serves. Raises MissingBinary."""
        controller_manager_port, scheduler_port = ports.free(), ports.free()
        controller_manager = (
            *self._component(CONTROLLER_MANAGER, controller_manager_port),
            f"--service-account-private-key-file={self._signing_key}",
            f"--root-ca-file={self.ca_file}",
            f"--controllers={_CONTROLLERS}",
            "--use-service-account-credentials",
        )
        programs = [_program(CONTROLLER_MANAGER, controller_manager)]
        if self.scheduler:
            programs.append(_program(SCHEDULER, self._kube_scheduler(scheduler_port)))
        return programs

    def _component(self, name: str, port: int) -> tuple[str, ...]:
        return (
            f"--kubeconfig={self.component_kubeconfig(name)}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            "--leader-elect=false",
            "--profiling=false",
        )

    def _kube_scheduler(self, port: int) -> tuple[str, ...]:
        """kube-scheduler ignores some flags when it gets a configuration file, so the file sets those values."""
        if not self.manager_url:
            return self._component(SCHEDULER, port)
        file = self.directory / "scheduler.yaml"
        extender = {
            "urlPrefix": f"{self.manager_url}/scheduler",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "weight": 1,
            "nodeCacheCapable": True,
            "ignorable": True,  # pods do not wait when the manager is down
            "httpTimeout": "2s",
        }
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.component_kubeconfig(SCHEDULER))},
            "leaderElection": {"leaderElect": False},
            "enableProfiling": False,
            "extenders": [extender],
        }
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        return (f"--config={file}", f"--bind-address={LOOPBACK}", f"--secure-port={port}")

    @property
    def _certificates(self) -> Path:
        return self.directory / "certificates"

    @property
    def _signing_key(self) -> Path:
        return self.directory / "service-accounts.key"

    def _write_keys(self) -> None:
        """Writes the signing key of service-account tokens, and the tokens of the administrator and the components."""
        self.directory.mkdir(private.DIRECTORY_MODE, parents=True, exist_ok=True)
        if not self._signing_key.exists():
            command = [str(binary("openssl")), "genrsa", "-out", str(self._signing_key), "2048"]
            subprocess.run(command, check=True, capture_output=True)
        tokens = f'{self.admin_token},admin,admin,"system:masters"\n'
        for component in (CONTROLLER_MANAGER, SCHEDULER):
            token = secrets.token_hex(24)
            tokens += f"{token},system:{component},system:{component}\n"
            kubeconfig.write(self.component_kubeconfig(component), self.server, token, self.ca_file)
        private.write(self.directory / "tokens.csv", tokens)


def _program(name: str, arguments: tuple[str, ...]) -> Program:
    return Program(name, str(binary(name)), arguments)
