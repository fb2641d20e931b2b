"""Cgroup trees with the files that an enforcer writes, as kubelets leave them, and orders for their pods."""

from pathlib import Path

from agent.enforcer import orders
from agent.enforcer.enforcer import Enforcer
from agent.enforcer.orders import ContainerOrder, Orders, PodOrder, Suppress
from agent.enforcer.settings import EnforcerSettings
from agent.enforcer.watch import FileWatch
from agent.metrics_advisor.cgroups import Driver, Version
from shared.clock import ManualClock
from shared.names import KubeQoS, Tier
from tests.unit.agent import trees
from tests.unit.agent.trees import Tree

MIB = 1 << 20
MID, BATCH = "1a2b3c4d-0000-1111-2222-00000000000a", "1a2b3c4d-0000-1111-2222-00000000000b"
LEVEL = {KubeQoS.BURSTABLE: "burstable", KubeQoS.BEST_EFFORT: "besteffort"}
V1_FILES = {
    "cpu": {"cpu.shares": "2", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "cpu.idle": "0"},
    "memory": {"memory.limit_in_bytes": "9223372036854771712"},
}
V2_FILES = {
    "cpu": {"cpu.weight": "1", "cpu.max": "max 100000", "cpu.idle": "0"},
    "memory": {"memory.max": "max", "memory.oom.group": "0"},
}


def mid(qos: KubeQoS = KubeQoS.BEST_EFFORT) -> PodOrder:
    container = ContainerOrder(id=f"containerd://{trees.ID}", cpu_milli=200, limit_milli=400, limit_bytes=64 * MIB)
    return PodOrder(
        uid=MID,
        key="d/mid",
        qos=qos,
        tier=Tier.MID,
        containers=(container,),
        cpu_milli=200,
        limit_milli=400,
        limit_bytes=64 * MIB,
    )


def batch(qos: KubeQoS = KubeQoS.BEST_EFFORT) -> PodOrder:
    container = ContainerOrder(id=f"containerd://{trees.ID}", cpu_milli=2000, limit_bytes=128 * MIB)
    return PodOrder(
        uid=BATCH,
        key="d/batch",
        qos=qos,
        tier=Tier.BATCH,
        containers=(container,),
        cpu_milli=2000,
        limit_bytes=128 * MIB,
    )


class Bounded:
    """One machine, its enforcer, and the time of both."""

    def __init__(
        self,
        root: Path,
        version: Version = Version.V2,
        driver: Driver = Driver.SYSTEMD,
        parent: str = "",
        watch: FileWatch | None = None,
    ) -> None:
        self.watch = watch
        self.tree = Tree(root / "cgroup", version, driver, parent)
        self.v2 = version is Version.V2
        self.cpu = self.tree.root if self.v2 else self.tree.throttling
        self.orders_dir, self.status_dir = root / "orders", root / "status"
        for directory in (self.orders_dir, self.status_dir):
            directory.mkdir()
        self.clock = ManualClock()
        self.clock.advance(1000)
        self.make(self.tree.class_path("besteffort"))
        self.make(self.tree.class_path("burstable"))
        self.enforcer = self.started()

    def started(self) -> Enforcer:
        """A new process."""
        settings = EnforcerSettings(
            orders_dir=str(self.orders_dir),
            status_dir=str(self.status_dir),
            cgroup_root=str(self.tree.root),
            cgroup_parent=self.tree.parent,
        )
        return Enforcer(settings, self.clock.monotonic, self.watch)

    def make(self, path: str, *, idle: bool = True) -> None:
        """A cgroup with what the kernel has in it."""
        for controller, files in (V2_FILES if self.v2 else V1_FILES).items():
            directory = self.tree.memory / path if controller == "memory" else self.cpu / path
            directory.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                if idle or name != "cpu.idle":
                    (directory / name).write_text(f"{text}\n")
        (self.tree.cpu / path).mkdir(parents=True, exist_ok=True)

    def add(self, order: PodOrder, *, idle: bool = True) -> None:
        level = LEVEL[order.qos]
        self.make(self.tree.pod_path(order.uid, level), idle=idle)
        for _ in order.containers:
            self.make(self.tree.container_path(uid=order.uid, qos=level), idle=idle)

    def order(self, *pods: PodOrder, suppress: Suppress | None = None) -> None:
        at = self.clock.monotonic()
        orders.write(self.orders_dir, Orders(version=orders.VERSION, at=at, pods=pods, suppress=suppress))

    def of(self, order: PodOrder, name: str, *, container: bool = False) -> str:
        """What stands in a file of its pod, or of its container."""
        level = LEVEL[order.qos]
        path = self.tree.container_path if container else None
        found = path(uid=order.uid, qos=level) if path else self.tree.pod_path(order.uid, level)
        return self.read(found, name)

    def read(self, path: str, name: str) -> str:
        top = self.tree.memory if name.startswith("memory") else self.cpu
        return (top / path / name).read_text().partition("\n")[0]

    @property
    def best_effort(self) -> str:
        return self.read(self.tree.class_path("besteffort"), "cpu.max" if self.v2 else "cpu.cfs_quota_us")

    def files(self) -> dict[str, str]:
        """All that an enforcer may write, by path."""
        known = {name for files in (*V1_FILES.values(), *V2_FILES.values()) for name in files}
        found = (path for path in self.tree.root.rglob("*") if path.is_file() and path.name in known)
        return {str(path.relative_to(self.tree.root)): path.read_text().partition("\n")[0] for path in found}

    def rounds(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.advance(1)
            self.enforcer.round()
