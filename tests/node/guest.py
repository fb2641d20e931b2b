"""A node's kernel of its own, from inside: what has to be there before it is a machine like any other.

Its root is the root of the machine that it runs on, only for reading.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.node.images import ROOT
from tests.node.layout import Kind, Layout
from tests.node.mounts import SCRATCH, mount

DISK = "/dev/ubda"
_CONTROLLERS = "+cpuset +cpu +io +memory +pids"
_SYSTEMD = "/lib/systemd/systemd"
_UNIT = "headroom-node.service"
# So that what goes to this machine's files is there soon.
_SETTINGS = {"vm/dirty_writeback_centisecs": 50, "vm/dirty_expire_centisecs": 50}

_KEY_SETTINGS = {"root_maxkeys": 1_000_000, "root_maxbytes": 25_000_000}


def begin(layout: Layout) -> None:
    """The file systems of a kernel that has just booted, and the cluster's folders. Raises CalledProcessError."""
    for kind, target in (("proc", "/proc"), ("sysfs", "/sys"), ("cgroup2", "/sys/fs/cgroup")):
        mount(kind, Path(target), "-t", kind)
    Path("/sys/fs/cgroup/cgroup.subtree_control").write_text(_CONTROLLERS)
    for kind, target in (("devpts", "/dev/pts"), ("tmpfs", "/dev/shm")):
        Path(target).mkdir(exist_ok=True)
        mount(kind, Path(target), "-t", kind)
    for name, value in _SETTINGS.items():
        Path("/proc/sys", name).write_text(str(value))
    for folder in (layout.directory, layout.logs):
        mount("none", folder, "-t", "hostfs", "-o", str(folder))


def settle(layout: Layout) -> None:
    """What programs miss in such a kernel: cAdvisor a clock speed, and kubelet settings of key rings; and the
    cable to the API server.
    """
    file = SCRATCH / "cpuinfo"
    known = Path("/proc/cpuinfo").read_text()
    file.write_text(known.replace("bogomips", "cpu MHz\t\t: 2000.000\nbogomips"))
    mount(file, Path("/proc/cpuinfo"), "--bind")
    # Without key rings in this kernel, their settings stand among copies of all others.
    settings = SCRATCH / "settings"
    subprocess.run(["cp", "--recursive", "/proc/sys/kernel", settings], check=False, stderr=subprocess.DEVNULL)
    (settings / "keys").mkdir()
    for name, value in _KEY_SETTINGS.items():
        (settings / "keys" / name).write_text(f"{value}\n")
    mount(settings, Path("/proc/sys/kernel"), "--bind")
    for line in (
        "link set lo up",
        f"address add {layout.inner_ip}/24 dev vec0",
        f"address add {layout.node_ip}/32 dev vec0",
        "link set vec0 up",
        f"route add default via {layout.outer_ip} src {layout.node_ip}",
    ):
        subprocess.run(["ip", *line.split()], check=True)


def hand_over(layout: Layout, *command: str) -> None:
    """Makes systemd the first process, which runs `command` as its only service. Raises OSError."""
    assert layout.kind is Kind.SYSTEMD
    Path("/etc/hostname").write_text(f"{layout.node}\n")
    units = Path("/run/systemd/system")
    units.mkdir(parents=True)
    lines = [
        "[Unit]",
        "DefaultDependencies=no",
        "[Service]",
        *(f'Environment="{name}={value}"' for name, value in os.environ.items()),
        f"WorkingDirectory={ROOT}",
        "Delegate=yes",
        "KillMode=process",
        f"ExecStart={' '.join(command)}",
        "StandardOutput=tty",
        "StandardError=tty",
        "TTYPath=/dev/console",
    ]
    (units / _UNIT).write_text("\n".join([*lines, ""]))
    sys.stdout.flush()
    os.execv(_SYSTEMD, [_SYSTEMD, f"--unit={_UNIT}"])
