"""A day of demand as clusters record it, by a seed alone: services that follow the hours, bursts of jobs, and a crowd.

Services scale themselves as a HorizontalPodAutoscaler does, on load as it was a step ago, so that a crowd is there
before the replicas for it. Half of them have asked for less than they use in the long run, and what a unit of load
costs changes with the hours.
"""

import math
import random
import zlib
from dataclasses import dataclass

from shared.cached_property import cached_property
from shared.quantity import Resources

STEP_SECONDS = 300
DAY_SECONDS = 86_400
HOUR_STEPS = 3600 // STEP_SECONDS
GIB = 1 << 30

SERVICES = 14
PEAK_MILLI = 25_000  # of a service's load, on average
NIGHT_SHARE = 0.3  # of the peak that is left in the quietest hour
CPUS_MILLI = (500, 750, 1000, 1500, 2000)
BYTES_PER_MILLI = 2 * GIB // 1000
TOO_LOW_EVERY = 2  # every so manieth service has requests that are too low
TARGET, TARGET_TOO_LOW = 0.7, 1.3  # load of a replica, as a share of its request
WHIM = 0.3  # what a unit of load costs more or less than usual, which changes in the course of WHIM_HOURS
WHIM_HOURS = (4.0, 9.0)
TOLERANCE = 0.1  # of a HorizontalPodAutoscaler
CALM_STEPS = 3  # replicas go when they were not needed for so long
CROWDED, CROWD_HOUR, CROWD_STEPS, CROWD_FACTOR = 2, 14, 9, 3.0
BURSTS_BY_DAY, BURSTS_BY_NIGHT = 3.0, 1.0  # an hour
BATCH_HOUR, BATCH_PODS = 2, 60  # the nightly one
JITTER = 0.3  # from the coolest pod of an owner to the hottest, at one time
MEMORY_HEAT = 0.75


@dataclass(frozen=True)
class Owner:
    """Who makes pods, and what each of these asks for."""

    name: str
    request: Resources


@dataclass(frozen=True)
class Service:
    """`replicas` and `heat` by step; heat is what a replica uses on average, as a share of its request."""

    owner: Owner
    replicas: tuple[int, ...]
    heat: tuple[float, ...]


@dataclass(frozen=True)
class Burst:
    """Pods that come together and end by themselves, each after `steps` of running."""

    owner: Owner
    begins: int
    pods: int
    steps: int
    heat: float


@dataclass(frozen=True)
class Day:
    """Everything that is asked for, by step of STEP_SECONDS."""

    steps: int
    services: tuple[Service, ...]
    bursts: tuple[Burst, ...]

    @cached_property
    def _heats(self) -> dict[str, tuple[float, ...]]:
        heats = {each.owner.name: each.heat for each in self.services}
        return heats | {each.owner.name: (each.heat,) * self.steps for each in self.bursts}

    def usage(self, owner: Owner, pod: str, step: int) -> Resources:
        """What a pod uses in a step."""
        chance = zlib.crc32(f"{pod}/{step}".encode()) / 2**32
        heat = self._heats[owner.name][step] * (1 + JITTER * (chance - 0.5))
        return Resources(round(owner.request.cpu_milli * heat), round(owner.request.memory_bytes * MEMORY_HEAT))


def day(seed: int, seconds: int = DAY_SECONDS, begins_hour: float = 0.0) -> Day:
    """The same for the same arguments. A shorter one is a part of a day."""
    chance = random.Random(seed)
    steps = seconds // STEP_SECONDS
    hours = [begins_hour + step / HOUR_STEPS for step in range(steps)]
    services = tuple(_service(number, hours, chance) for number in range(SERVICES))
    return Day(steps, services, tuple(_bursts(hours, chance)))


def _service(number: int, hours: list[float], chance: random.Random) -> Service:
    owner = _owner(f"service-{number}", chance.choice(CPUS_MILLI))
    peak = PEAK_MILLI * chance.uniform(0.5, 1.5) / owner.request.cpu_milli
    busiest = chance.gauss(14, 2)
    crowd = CROWD_FACTOR if number < CROWDED else 1.0
    target = TARGET_TOO_LOW if number % TOO_LOW_EVERY == 1 else TARGET
    period, phase = chance.uniform(*WHIM_HOURS), chance.uniform(0, 2 * math.pi)
    drift = 0.0
    loads = []
    for hour in hours:
        drift = 0.9 * drift + chance.gauss(0, 0.03)
        rhythm = NIGHT_SHARE + (1 - NIGHT_SHARE) * (0.5 + 0.5 * math.cos((hour - busiest) * math.pi / 12))
        is_crowded = CROWD_HOUR <= hour % 24 < CROWD_HOUR + CROWD_STEPS / HOUR_STEPS
        loads.append(peak * rhythm * (1 + drift) * (crowd if is_crowded else 1.0))
    replicas = followed(loads, target)
    heat = tuple(
        load / count * (1 + WHIM * math.sin(2 * math.pi * hour / period + phase))
        for hour, load, count in zip(hours, loads, replicas, strict=True)
    )
    return Service(owner, replicas, heat)


def followed(loads: list[float], target: float) -> tuple[int, ...]:
    """How many replicas a HorizontalPodAutoscaler has at each step, that of the step before being all it has seen."""
    wanted = [math.ceil(load / target) for load in loads]
    counts = wanted[:1]
    for step in range(1, len(loads)):
        now, seen = counts[-1], loads[step - 1]
        if abs(seen / now / target - 1) > TOLERANCE:
            now = max(wanted[step - 1], min(now, max(wanted[max(0, step - CALM_STEPS) : step])))
        counts.append(max(1, now))
    return tuple(counts)


def _bursts(hours: list[float], chance: random.Random) -> list[Burst]:
    found: list[Burst] = []
    for step, hour in enumerate(hours):
        often = (BURSTS_BY_DAY if 8 <= hour % 24 < 20 else BURSTS_BY_NIGHT) / HOUR_STEPS
        if hour % 24 == BATCH_HOUR:
            found.append(_burst(len(found), step, BATCH_PODS, 1500, 12, chance))
        elif chance.random() < often:
            cpu = chance.choice(CPUS_MILLI)
            found.append(_burst(len(found), step, chance.randint(5, 25), cpu, chance.randint(2, 10), chance))
    return found


def _burst(number: int, begins: int, pods: int, cpu_milli: int, steps: int, chance: random.Random) -> Burst:
    return Burst(_owner(f"job-{number}", cpu_milli), begins, pods, steps, chance.uniform(0.6, 1.3))


def _owner(name: str, cpu_milli: int) -> Owner:
    return Owner(name, Resources(cpu_milli, cpu_milli * BYTES_PER_MILLI))
