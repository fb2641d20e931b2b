"""Makes fresh namespaces, or a fresh kernel, a machine: mounts, cgroups, kernel settings, network, name.

What kubelet, containerd and pods write below /usr, /etc, /var and /run stays in the cluster's folder or in memory.
"""

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.node import guest, meter, seed
from tests.node.layout import API_IP, NODE, NODE_IP, Layout
from tests.node.mounts import SCRATCH, mount, overlay, overlay_tools

CGROUPS = Path("/sys/fs/cgroup")
UNIFIED = CGROUPS / "unified"
CABLE = "cable"  # a network device: the loose end of the first node's, and what the second one is plugged in with
_PLUG_SECONDS = 60.0

# What kubelet sets, of the whole kernel: files with just these values stand in their places.
_KUBELET_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


def furnish(layout: Layout) -> None:
    """All of it. Raises CalledProcessError and OSError."""
    for folder in (layout.held, layout.process_ids, layout.disk):
        folder.mkdir(parents=True, exist_ok=True)
    overlay_tools(layout.tools)
    if layout.kernel is None:
        seed.plant(layout.seed, layout.disk / "containerd")
        _make_writable(layout)
        _part_from_the_kernel(layout)
    else:
        mount(guest.DISK, layout.disk, "-t", "ext4", "-o", "noatime")
        _make_writable(layout)
        guest.settle(layout)
    mount("none", Path("/"), "--make-rshared")  # kubelet's own mounts are to reach into running pods
    socket.sethostname(layout.node)
    if layout.kernel is None:
        _make_network(layout)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    network = Path("/etc/cni/net.d")
    network.mkdir(parents=True)
    shutil.copy(layout.own / "network.conflist", network / "10-pods.conflist")


def _part_from_the_kernel(layout: Layout) -> None:
    """Of the kernel that all of this machine has, what a node sees and sets for itself."""
    mount("proc", Path("/proc"), "-t", "proc")
    for index, (name, value) in enumerate(_KUBELET_SETTINGS.items()):
        file = SCRATCH / f"setting-{index}"
        file.write_text(f"{value}\n")
        mount(file, Path("/proc/sys", name), "--bind")
    mount("sysfs", Path("/sys"), "-t", "sysfs")
    _mount_cgroups()
    meter.begin(Path("/proc/stat"), CGROUPS / "cpuacct")
    mount(meter.FILE, Path("/proc/stat"), "--bind")
    _write_runtime_spec(layout)


def _make_writable(layout: Layout) -> None:
    overlay(Path("/var"), layout.disk / "var")
    # Not through an overlay: kubelet asks for the file system below, and has to get one with a device.
    kubelet = layout.disk / "kubelet"
    kubelet.mkdir()
    Path("/var/lib/kubelet").mkdir(exist_ok=True)
    mount(kubelet, Path("/var/lib/kubelet"), "--bind")
    mount("tmpfs", Path("/run"), "-t", "tmpfs")


def _write_runtime_spec(layout: Layout) -> None:
    """What containers begin with: containerd's own, and the machine's /proc/stat."""
    said = subprocess.run(["ctr", "oci", "spec"], check=True, capture_output=True).stdout
    spec = json.loads(said)
    seen = {"destination": "/proc/stat", "type": "bind", "source": str(meter.FILE), "options": ["bind", "ro"]}
    spec["mounts"].append(seen)
    (layout.own / "runtime-spec.json").write_text(json.dumps(spec))


def _mount_cgroups() -> None:
    """Anew: each hierarchy then begins at the cluster's own cgroup."""
    mount("tmpfs", CGROUPS, "-t", "tmpfs", "-o", "mode=755")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, _ = line.split(":", 2)
        name = controllers.removeprefix("name=") or UNIFIED.name
        (CGROUPS / name).mkdir()
        if number == "0":
            mount("cgroup2", UNIFIED, "-t", "cgroup2")
        else:
            options = f"none,{controllers}" if "=" in controllers else controllers
            mount("cgroup", CGROUPS / name, "-t", "cgroup", "-o", options)
            for part in controllers.split(",") if "," in controllers else ():
                (CGROUPS / part).symlink_to(name)


def _make_network(layout: Layout) -> None:
    """The first node's address on one end of a cable whose other end is loose, and the API server's on the loopback
    device; the second node gets that other end.
    """
    if layout.node == NODE:
        device = [
            f"address add {API_IP}/32 dev lo",
            f"link add eth0 type veth peer name {CABLE}",
            f"link set {CABLE} up",
        ]
    else:
        _wait_for_cable()
        device = [f"link set {CABLE} name eth0"]
    for line in (
        "link set lo up",
        *device,
        f"address add {layout.node_ip}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {NODE_IP}",
    ):
        subprocess.run(["ip", *line.split()], check=True)


def _wait_for_cable() -> None:
    """Until it has been plugged in from outside. Raises TimeoutError."""
    deadline = time.monotonic() + _PLUG_SECONDS
    while not Path("/sys/class/net", CABLE).exists():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody has plugged this node in")
        time.sleep(0.05)
