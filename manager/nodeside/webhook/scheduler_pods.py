"""Restarts the second scheduler for a new authority, since kube-scheduler reads `ca.crt` only when it starts.

A new authority is published an hour before a port serves a certificate of it. In this time the leader evicts the pods
that started before, one at a time and within their disruption budget; their Deployment creates them again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from manager.nodeside.webhook.certificate_secret import CertificateSecret
from manager.nodeside.webhook.certificates import Material
from shared import durations
from shared.api.core import Condition
from shared.api.meta import ObjectMeta, Wire, prepared
from shared.certificates import CLOCK_SKEW_SECONDS
from shared.kube.client import Client
from shared.kube.errors import NotFound, TooManyRequests
from shared.kube.resources import PODS

logger = logging.getLogger(__name__)

SPREAD_SECONDS = 180.0  # until each kubelet has seen a changed ConfigMap
SELECTOR = "app.kubernetes.io/part-of=headroom,app.kubernetes.io/component=scheduler"


class _Running(Wire, frozen=True):
    started_at: str = ""


class _State(Wire, frozen=True):
    running: _Running | None = None


class _Container(Wire, frozen=True):
    state: _State = _State()


class _Status(Wire, frozen=True):
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[_Container, ...] | None = None


@prepared
class SchedulerPod(Wire, frozen=True):
    """A pod of the second scheduler."""

    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()

    @property
    def is_ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())

    @property
    def started_at(self) -> float | None:
        """When its container started, in Unix seconds; None while it does not run."""
        for each in self.status.container_statuses or ():
            if each.state.running is not None and each.state.running.started_at:
                return durations.instant(each.state.running.started_at)
        return None


def outdated(pods: Iterable[SchedulerPod], material: Material, now: float) -> SchedulerPod | None:
    """The pod that has to restart next to know the newest authority; None while one of the pods is not ready."""
    known = list(pods)
    newest = material.upcoming or material.serving
    issued_at = newest.begins_at + CLOCK_SKEW_SECONDS
    is_only = material.bundle == newest.authority  # before the first one, no pod can start
    spread = 0.0 if is_only else SPREAD_SECONDS
    if now < issued_at + 2 * SPREAD_SECONDS or not all(each.is_ready for each in known):
        return None
    late = [(at, each) for each in known if (at := each.started_at) is not None and at < issued_at + spread]
    return min(late, key=lambda pair: pair[0])[1] if late else None


class SchedulerPods:
    """Those of one release. `renew` raises HeadroomError."""

    def __init__(self, client: Client, namespace: str, secret: str, is_leader: Callable[[], bool]) -> None:
        self._client = client
        self._namespace = namespace
        self._secret = CertificateSecret(client, namespace, secret)
        self._is_leader = is_leader

    def renew(self) -> None:
        """Evicts the pod that is due, if any."""
        material = self._secret.read()[1] if self._is_leader() else None
        if material is None:
            return
        pods = self._client.list(PODS, self._namespace, label_selector=SELECTOR, into=SchedulerPod).items
        due = outdated(pods, material, self._client.clock.now())
        if due is None:
            return
        about: Mapping[str, str] = {"pod": due.metadata.key}
        try:
            self._client.evict(self._namespace, due.metadata.name, uid=due.metadata.uid)
            logger.info("scheduler evicted, so that its next pod trusts the new authority", extra=about)
        except NotFound:
            pass
        except TooManyRequests as error:
            logger.info("scheduler not evicted yet: %s", error, extra=about)
