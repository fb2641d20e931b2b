"""Parsers of the kernel's files. Pure; ValueError for a file of another shape or without the requested value."""

import os
from collections.abc import Iterable, Sequence

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_MIN_STAT_FIELDS = 8  # "cpu", user, nice, system, idle, iowait, irq, softirq
_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own sector size
_MIN_DISK_FIELDS = 10  # major, minor, name, 3 x read and its sectors, 3 x written and its sectors
_KIB = 1024


def usage_usec(stat: bytes) -> int:
    """CPU time of a v2 cpu.stat, microseconds."""
    return counter(stat, b"usage_usec")


def throttling(stat: bytes) -> tuple[int, int]:
    """Throttled periods and all periods of a cpu.stat; v2 has them only where the cpu controller is on."""
    return counter(stat, b"nr_throttled"), counter(stat, b"nr_periods")


def counter(stat: bytes, name: bytes) -> int:
    """The value of a line "name value"."""
    line = b"\n" + name + b" "
    start = len(name) + 1 if stat.startswith(line[1:]) else stat.index(line) + len(line)
    end = stat.find(b"\n", start)
    return int(stat[start:] if end < 0 else stat[start:end])


def counter_or_zero(stat: bytes, name: bytes) -> int:
    """The same, and 0 without the line."""
    return counter(stat, name) if (b"\n" + name + b" ") in b"\n" + stat else 0


def waited_usec(psi: bytes) -> int:
    """The total of the line "some" of a pressure file: microseconds in which some task waited."""
    line, _, _ = psi.partition(b"\n")
    if not line.startswith(b"some "):
        raise ValueError(f"not a pressure file: {psi[:80]!r}")
    return int(line[line.index(b"total=") + len(b"total=") :])


def sum_of(stat: bytes, keys: Sequence[bytes]) -> int:
    """The sum of the lines that begin with `keys`, each written as b"\nname "; every line must exist."""
    stat = b"\n" + stat
    total = 0
    for key in keys:
        start = stat.index(key) + len(key)
        total += int(stat[start : stat.index(b"\n", start)])
    return total


def numa_bytes(numa_stat: bytes, names: Iterable[bytes], unit_bytes: int) -> dict[int, int]:
    """Bytes by NUMA node in the lines `names` of a memory.numa_stat: "name=4 N0=1 N1=3" (v1), "name N0=1 N1=3" (v2)."""
    wanted = set(names)
    found: dict[int, int] = {}
    for line in numa_stat.splitlines():
        head, *fields = line.split()
        name = head.partition(b"=")[0]
        if name not in wanted:
            continue
        wanted.remove(name)
        for field in fields:
            node, _, value = field.partition(b"=")
            number = int(node.removeprefix(b"N"))
            found[number] = found.get(number, 0) + int(value) * unit_bytes
    if wanted:
        raise ValueError(f"memory.numa_stat lacks {sorted(wanted)!r}")
    return found


def pressure(psi: bytes) -> tuple[float, float | None]:
    """(some, full) avg10 of a pressure file as ratios 0 to 1; full is None if this kernel does not write it."""
    some = _average(psi, b"some avg10=")
    if some is None:
        raise ValueError(f"not a pressure file: {psi[:80]!r}")
    return some, _average(psi, b"full avg10=")


def _average(psi: bytes, line: bytes) -> float | None:
    start = psi.find(line) + len(line)
    if start < len(line):
        return None
    percent = float(psi[start : psi.index(b" ", start)])
    if not percent >= 0:  # also catches NaN
        raise ValueError(f"pressure below nothing: {psi!r}")
    return min(1.0, percent / 100)


def busy_seconds(stat: bytes) -> float:
    """Busy CPU time of all CPUs since boot: the first line of /proc/stat.

    User, nice, system, irq and softirq. Waiting for disks, time stolen by the hypervisor and guests (already in user)
    are not the node's usage.
    """
    fields = stat.split(b"\n", 1)[0].split()
    if len(fields) < _MIN_STAT_FIELDS or fields[0] != b"cpu":
        raise ValueError(f"/proc/stat does not begin with the sum of all CPUs: {fields[:_MIN_STAT_FIELDS]!r}")
    return _busy(fields)


def stolen_seconds(stat: bytes) -> float:
    """CPU time of all CPUs since boot that the hypervisor gave to others; 0 on kernels that do not count it."""
    fields = stat.split(b"\n", 1)[0].split()
    return int(fields[_MIN_STAT_FIELDS]) * _TICK_SECONDS if len(fields) > _MIN_STAT_FIELDS else 0.0


def busy_seconds_by_cpu(stat: bytes) -> dict[int, float]:
    """The same for each online CPU."""
    found = {}
    for line in stat.splitlines()[1:]:
        if not line.startswith(b"cpu"):
            break
        fields = line.split()
        if len(fields) < _MIN_STAT_FIELDS:
            raise ValueError(f"/proc/stat has a CPU without its counters: {line!r}")
        found[int(fields[0].removeprefix(b"cpu"))] = _busy(fields)
    return found


def _busy(fields: Sequence[bytes]) -> float:
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[1:_MIN_STAT_FIELDS])
    return (user + nice + system + irq + softirq) * _TICK_SECONDS


def meminfo(text: bytes) -> dict[bytes, int]:
    """Bytes by name of a meminfo file, of the machine or ("Node 0 MemTotal: ...") of one NUMA node."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(b":")
        amount = value.split()
        if amount and amount[-1] == b"kB":
            found[name.split()[-1]] = int(amount[0]) * _KIB
    return found


def used_bytes(text: bytes) -> int:
    """Memory that cannot be freed without swapping: MemTotal - MemAvailable of /proc/meminfo."""
    found = meminfo(text[: text.find(b"MemAvailable") + 64])  # among the first lines; the rest needs no parsing
    return max(0, _of(found, b"MemTotal") - _of(found, b"MemAvailable"))


def used_bytes_with_page_cache(text: bytes) -> int:
    """MemTotal - MemFree of /proc/meminfo."""
    found = meminfo(text)
    return max(0, _of(found, b"MemTotal") - _of(found, b"MemFree"))


def used_bytes_with_hot_page_cache(text: bytes) -> int:
    """The same without the inactive pages of files, which the kernel would drop first."""
    found = meminfo(text)
    return max(0, _of(found, b"MemTotal") - _of(found, b"MemFree") - _of(found, b"Inactive(file)"))


def numa_used_bytes(text: bytes) -> int:
    """Used bytes of one NUMA node's meminfo, which has no MemAvailable: all but free and reclaimable pages."""
    found = meminfo(text)
    names = (b"MemFree", b"Active(file)", b"Inactive(file)", b"SReclaimable")
    return max(0, _of(found, b"MemTotal") - sum(_of(found, name) for name in names))


def _of(found: dict[bytes, int], name: bytes) -> int:
    if name not in found:
        raise ValueError(f"meminfo lacks {name.decode()}")
    return found[name]


def cpu_list(text: bytes) -> set[int]:
    """CPU numbers of a list like "0-3,8"; an empty one for a NUMA node of memory only."""
    found: set[int] = set()
    for part in text.split(b","):
        first, _, last = part.strip().partition(b"-")
        if first:
            found.update(range(int(first), int(last or first) + 1))
    return found


def load(loadavg: bytes) -> tuple[float, float, float]:
    """The averages over 1, 5 and 15 minutes of /proc/loadavg."""
    one, five, fifteen = map(float, loadavg.split()[:3])
    return one, five, fifteen


def disk_bytes(diskstats: bytes, disks: set[str]) -> dict[str, tuple[int, int]]:
    """Bytes read and written since boot by each of `disks`, of /proc/diskstats."""
    found = {}
    for line in diskstats.splitlines():
        fields = line.split()
        if len(fields) < _MIN_DISK_FIELDS:
            raise ValueError(f"/proc/diskstats has a disk without its counters: {line!r}")
        name = fields[2].decode()
        if name in disks:
            found[name] = int(fields[5]) * _SECTOR_BYTES, int(fields[9]) * _SECTOR_BYTES
    return found
