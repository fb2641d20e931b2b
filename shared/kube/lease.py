"""Leader election on a coordination.k8s.io/v1 Lease, by client-go's rules.

There are never two leaders, even if wall clocks differ. A holder counts from before it sent its last successful write,
and steps down after `renew_deadline_seconds`. The other candidates count from when they saw that write, which is later,
and wait the longer `lease_seconds`. Each process uses its own monotonic clock; the times in the Lease are for people.
"""

import contextlib
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from shared import durations
from shared.api.meta import Wire
from shared.clock import Clock
from shared.kube.client import Client
from shared.kube.errors import ApiError, Conflict, InvalidResponse, NotFound, Unreachable
from shared.kube.resources import LEASES

logger = logging.getLogger(__name__)

# Candidates try to acquire every retry interval, up to this factor later, so that they do not collide.
_ACQUIRE_JITTER = 1.2

# The timeout never goes below this, however close the renewal deadline is.
_SHORTEST_TIMEOUT_SECONDS = 0.5


@dataclass(frozen=True)
class LeaseTimes:
    """client-go's defaults. `lease` > `renew_deadline` > `retry`: the gap between the first two is the margin."""

    lease_seconds: int = 15
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_seconds > self.renew_deadline_seconds > self.retry_seconds * _ACQUIRE_JITTER > 0:
            raise ValueError(f"lease > renew deadline > {_ACQUIRE_JITTER} x retry > 0 does not hold: {self}")


class LeaseSpec(Wire, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True):
    """The whole object, because it is written back as a whole; metadata stays unchanged."""

    metadata: dict[str, object]
    spec: LeaseSpec = LeaseSpec()


@dataclass(frozen=True)
class ObservedLease:
    """A lease's spec, and when we first saw this spec, or first missed the lease, on our monotonic clock."""

    spec: LeaseSpec
    since: float
    missing: bool = False

    def held_by_other(self, identity: str, *, monotonic: float, times: LeaseTimes) -> bool:
        """Whether another candidate may still be leading."""
        holder, duration = self.spec.holder_identity, self.spec.lease_duration_seconds or 0
        lasts = duration if duration > 0 else times.lease_seconds
        return bool(holder) and holder != identity and monotonic < self.since + lasts


def claimed(spec: LeaseSpec, identity: str, *, now: float, times: LeaseTimes) -> LeaseSpec:
    """`spec` as written by `identity` at wall time `now`, to acquire it or to renew it."""
    stamp = durations.micro_timestamp(now)
    renewal = spec.holder_identity == identity
    transitions = spec.lease_transitions or 0
    return LeaseSpec(
        holder_identity=identity,
        lease_duration_seconds=times.lease_seconds,
        acquire_time=spec.acquire_time if renewal else stamp,
        renew_time=stamp,
        # The first holder of a new lease does not count as a transition.
        lease_transitions=transitions if renewal or spec.holder_identity is None else transitions + 1,
    )


def released(spec: LeaseSpec, *, now: float) -> LeaseSpec:
    """`spec` without a holder; the duration is the shortest valid one, in case a candidate waits for it anyway."""
    stamp = durations.micro_timestamp(now)
    return msgspec.structs.replace(
        spec, holder_identity="", lease_duration_seconds=1, acquire_time=stamp, renew_time=stamp
    )


class LeaderElector:
    """One candidate. `identity` must be unique among all processes, for example the pod's name and uid."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        *,
        times: LeaseTimes | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._times = times or LeaseTimes()
        self._observed: ObservedLease | None = None
        self._held: Lease | None = None  # as the server answered our last write; None after one with another outcome
        self._leads_until = float("-inf")

    def is_leader(self) -> bool:
        """Whether we lead now. Callable from any thread; ask again before every write that needs leadership."""
        return self._clock.monotonic() < self._leads_until

    def run(self, stop: threading.Event, on_started: Callable[[], None], on_stopped: Callable[[], None]) -> None:
        """Stands for election until `stop`, again and again, and calls back at every change.

        Both callbacks should return soon, because no renewal happens meanwhile. `on_stopped` runs before the lease is
        released, so that the old leader's work has ended when the next leader starts.
        """
        leading = False
        try:
            while not stop.is_set():
                self.stand()
                if self.is_leader() != leading:
                    leading = not leading
                    logger.info("started leading" if leading else "stopped leading", extra=self._about())
                    (on_started if leading else on_stopped)()
                self._clock.wait(stop, self._pause_seconds())
        finally:
            self._step_down(on_stopped if leading else None)

    def stand(self) -> bool:
        """Acquires or renews the lease if possible; True on success. Never raises for an API error."""
        try:
            return self._stand()
        except (ApiError, Unreachable, InvalidResponse) as error:
            logger.warning("lease not written: %s", error, extra=self._about())
            return False

    def release(self) -> None:
        """Releases the lease, if it is ours, so that the next leader need not wait for its end."""
        self._leads_until = float("-inf")
        client = self._client.single_attempt(self._times.retry_seconds)  # a process that ends has little time
        try:
            lease = self._read(client)
            if lease is not None and lease.spec.holder_identity == self._identity:
                self._write(client, lease, released(lease.spec, now=self._clock.now()))
        except (ApiError, Unreachable, InvalidResponse) as error:
            logger.warning("lease not released, others wait for its end: %s", error, extra=self._about())

    def _stand(self) -> bool:
        held = self._held
        if held is not None and self.is_leader():
            # A leader need not read what it alone writes, as in client-go; the resourceVersion tells of other writers.
            with contextlib.suppress(Conflict, NotFound):
                return self._claim(held, self._clock.monotonic())
        lease = self._read(self._hasty())
        started = self._clock.monotonic()
        seen = self._observed
        if lease is not None and (seen is None or seen.missing or seen.spec != lease.spec):
            seen = ObservedLease(lease.spec, started)
        # The wait starts over for a deleted lease: its holder may have renewed it just before, and not know yet.
        elif lease is None and seen is not None and not seen.missing:
            seen = ObservedLease(seen.spec, started, missing=True)
        self._observed = seen
        if seen is not None and seen.held_by_other(self._identity, monotonic=started, times=self._times):
            self._leads_until = float("-inf")
            return False
        return self._claim(lease, started)

    def _claim(self, lease: Lease | None, started: float) -> bool:
        """Acquires or renews the lease, unless another has written it; we lead from `started` on."""
        self._held = None
        spec = claimed(lease.spec if lease else LeaseSpec(), self._identity, now=self._clock.now(), times=self._times)
        metadata = self._write(self._hasty(), lease, spec)
        self._held = Lease(metadata, spec) if metadata["resourceVersion"] else None
        self._observed = ObservedLease(spec, started)
        self._leads_until = started + self._times.renew_deadline_seconds
        return True

    def _read(self, client: Client) -> Lease | None:
        try:
            return client.get(LEASES, self._name, self._namespace, into=Lease)
        except NotFound:
            return None

    def _write(self, client: Client, lease: Lease | None, spec: LeaseSpec) -> dict[str, object]:
        """The metadata to write it with the next time."""
        body: dict[str, object] = {"apiVersion": LEASES.api_version, "kind": "Lease", "spec": spec}
        if lease is None:
            metadata: dict[str, object] = {"name": self._name, "namespace": self._namespace}
            written = client.create(LEASES, body | {"metadata": metadata}, self._namespace)
        else:
            # The resourceVersion in the metadata makes the write fail after any other write.
            metadata = lease.metadata
            written = client.replace(LEASES, self._name, body | {"metadata": metadata}, self._namespace)
        return metadata | {"resourceVersion": written.resource_version}

    def _hasty(self) -> Client:
        """The client, limited to one attempt that ends when our leadership does."""
        left = self._leads_until - self._clock.monotonic()
        timeout = left if left > 0 else self._times.renew_deadline_seconds
        return self._client.single_attempt(max(timeout, _SHORTEST_TIMEOUT_SECONDS))

    def _pause_seconds(self) -> float:
        left = self._leads_until - self._clock.monotonic()
        if left > 0:
            return min(self._times.retry_seconds, left)
        return self._times.retry_seconds * random.uniform(1, _ACQUIRE_JITTER)

    def _step_down(self, on_stopped: Callable[[], None] | None) -> None:
        try:
            if on_stopped is not None:
                on_stopped()
        finally:
            self.release()

    def _about(self) -> dict[str, str]:
        return {"lease": f"{self._namespace}/{self._name}", "identity": self._identity}
