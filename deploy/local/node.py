"""This machine as a node of a cluster, and the scheduler that assigns pods: `python -m deploy.local.node`.

On SIGTERM it ends every process of every pod. After a kill -9, the next start ends what is left, and starts the pods
anew.
"""

import logging
import sys
import threading
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from deploy.local import daemon
from deploy.local.daemon import LocalSettings
from deploy.local.kubelet import containment
from deploy.local.kubelet.kubelet import Kubelet
from deploy.local.kubelet.logs import log_server
from deploy.local.kubelet.node import ADDRESS, NodeHeart, ReportedNode, host_name, host_size
from deploy.local.kubelet.runner import KubeletHost
from deploy.local.scheduler import scheduler
from deploy.local.scheduler.extender import Extender
from deploy.local.scheduler.scheduler import Scheduler
from shared.clock import SystemClock
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.events import Recorder
from shared.telemetry import Loops

logger = logging.getLogger(__name__)


class NodeSettings(LocalSettings, frozen=True):
    """This machine as a node of a cluster."""

    node_name: Annotated[str, Meta(description="name of the Node; empty: the host's")] = ""
    state_dir: Annotated[str, Meta(description="working directories and logs of pods")] = "/var/lib/headroom/kubelet"
    cgroup_root: Annotated[str, Meta(description="where cgroups are mounted")] = "/sys/fs/cgroup"
    cgroup_parent: Annotated[str, Meta(description="path below which this node's pods live")] = "headroom"
    schedule: Annotated[bool, Meta(description="run the scheduler as well")] = True
    extender_url: Annotated[str, Meta(description="URL of the scheduler's extender; empty: it has none")] = ""
    tls_cert_file: Annotated[str, Meta(description="certificate to serve logs with; empty: plain HTTP")] = ""
    tls_private_key_file: Annotated[str, Meta(description="its key")] = ""


def run(chosen: NodeSettings, connection: Connection, ended: threading.Event) -> None:
    """Runs the node until `ended` is set."""
    client = Client(connection, "headroom-node")
    name = chosen.node_name or host_name()
    held = containment.choose(Path(chosen.cgroup_root), chosen.cgroup_parent)
    logger.info("pods run in %s", held.description)
    loops = Loops()
    recorder = Recorder(client, "kubelet", name)
    machine = KubeletHost(Path(chosen.state_dir), held, ADDRESS)
    kubelet = Kubelet(client, recorder, machine, name)
    certificate = (chosen.tls_cert_file, chosen.tls_private_key_file or chosen.tls_cert_file)
    logs = log_server(kubelet.log_file, certificate if chosen.tls_cert_file else None)
    logs.start()
    heart = NodeHeart(client, ReportedNode(name, host_size(), kubelet_port=logs.address[1]), SystemClock())
    loops.start("node-heart", heart.run)
    loops.start("kubelet-events", recorder.run)
    kubelet.start(loops)
    extender = Extender(chosen.extender_url) if chosen.extender_url else None
    if chosen.schedule:
        events = Recorder(client, scheduler.NAME, name)
        loops.start("scheduler-events", events.run)
        Scheduler(client, events, extender).start(loops)
    ended.wait()
    loops.close()
    if extender is not None:
        extender.close()
    kubelet.shut_down()
    logs.close()


if __name__ == "__main__":
    sys.exit(daemon.main("deploy.local.node", NodeSettings, run))
