"""The one file in which the agent tells the enforcer what pods hold: amounts, never paths or values of files.

The agent replaces it as a whole, the enforcer reads it as a whole, and both check it.
"""

import os
import re
import stat
from pathlib import Path

import msgspec

from shared.errors import InvalidInput
from shared.names import KubeQoS, Tier

VERSION = 1
FILE = "orders.json"
MOST_BYTES = 4 << 20
MOST_PODS = 1024
MOST_CONTAINERS = 256  # of a pod
MOST_MILLI = 1 << 24  # of cpu: 16,777 cores
MOST_MEMORY_BYTES = 1 << 50
LEAST_MEMORY_BYTES = 1 << 20  # no container starts with less

_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}")
_ID = re.compile(r"[a-z][a-z0-9.+-]{0,31}://[0-9A-Za-z][0-9A-Za-z_.-]{0,127}")
_KEY = re.compile(r"[0-9A-Za-z./_-]{0,512}")


class PodBounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A pod or a container: its request of its tier's cpu, and its limits, where they are the tier's.

    Without a limit here it has none, or a native one, which is the kubelet's job.
    """

    cpu_milli: int = 0
    limit_milli: int | None = None
    limit_bytes: int | None = None


class ContainerOrder(PodBounds, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`id` as in the pod's status, "containerd://0123..."."""

    id: str


class PodOrder(PodBounds, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`key` is for people: "namespace/name". `native`: the pod also requests cpu of the node itself."""

    uid: str
    key: str = ""
    qos: KubeQoS
    tier: Tier
    native: bool = False
    containers: tuple[ContainerOrder, ...] = ()


class Suppress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cpu that best-effort pods may use together, and the node's capacity, in milli-cores."""

    cpu_milli: int
    capacity_milli: int


class Orders(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`at` is the time of CLOCK_MONOTONIC, which all processes of a machine share. `suppress` None means no quota."""

    version: int
    at: float
    pods: tuple[PodOrder, ...] = ()
    suppress: Suppress | None = None


_DECODER = msgspec.json.Decoder(Orders)


def write(directory: Path, orders: Orders) -> None:
    """Replaces the previous orders, completely or not at all. Raises OSError."""
    temporary = directory / f".{FILE}"
    temporary.write_bytes(msgspec.json.encode(orders))
    temporary.replace(directory / FILE)


def read(directory: Path) -> Orders | None:
    """The current orders; None without any. Raises InvalidInput for a file that is torn, foreign or out of bounds."""
    path = directory / FILE
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused("(file)", str(path), str(error)) from error
    with os.fdopen(opened, "rb") as file:
        known = os.fstat(file.fileno())
        if not stat.S_ISREG(known.st_mode) or known.st_size > MOST_BYTES:
            raise _refused("(file)", known.st_size, f"expected a file of at most {MOST_BYTES} bytes")
        text = file.read(MOST_BYTES + 1)
    try:
        found = _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _refused("(document)", text[:64], str(error)) from error
    check(found)
    return found


def check(orders: Orders) -> None:
    """Raises InvalidInput."""
    if orders.version != VERSION:
        raise _refused("version", orders.version, f"expected {VERSION}")
    if len(orders.pods) > MOST_PODS:
        raise _refused("pods", len(orders.pods), f"expected at most {MOST_PODS}")
    for pod in orders.pods:
        field = f"pods[{pod.uid[:128]}]"
        if not _UID.fullmatch(pod.uid) or not _KEY.fullmatch(pod.key):
            raise _refused(f"{field}.uid", (pod.uid, pod.key), "expected a uid, and the name of a pod")
        if len(pod.containers) > MOST_CONTAINERS:
            raise _refused(f"{field}.containers", len(pod.containers), f"expected at most {MOST_CONTAINERS}")
        for container in pod.containers:
            if not _ID.fullmatch(container.id):
                raise _refused(f"{field}.containers.id", container.id, "expected runtime://id")
        for bounds in (pod, *pod.containers):
            _check(bounds, field)
    if orders.suppress is not None:
        for name in ("cpu_milli", "capacity_milli"):
            _within(getattr(orders.suppress, name), 0, MOST_MILLI, f"suppress.{name}")


def _check(bounds: PodBounds, field: str) -> None:
    _within(bounds.cpu_milli, 0, MOST_MILLI, f"{field}.cpu_milli")
    if bounds.limit_milli is not None:
        _within(bounds.limit_milli, 1, MOST_MILLI, f"{field}.limit_milli")
    if bounds.limit_bytes is not None:
        _within(bounds.limit_bytes, LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES, f"{field}.limit_bytes")


def _within(value: int, least: int, most: int, field: str) -> None:
    if not least <= value <= most:
        raise _refused(field, value, f"expected {least} to {most}")


def _refused(field: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(source="orders of the agent", field=field, value=value, problem=problem)
