"""Profiles, PriorityClasses and namespaces, cached for the answers that depend on them."""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from manager.nodeside.reports import PersistentProblems, ReportedProblem
from manager.nodeside.webhook import profiles
from manager.nodeside.webhook.profiles import PriorityClassObject, Profile
from shared.api.core import Namespace
from shared.api.meta import ObjectMeta
from shared.api.profile import ClusterColocationProfile
from shared.errors import InvalidInput
from shared.kube import kinds
from shared.kube.client import Client
from shared.kube.events import WARNING, EventReason, ObjectRef
from shared.kube.informer import Informer
from shared.kube.object_cache import Change, ChangeKind
from shared.kube.resources import CLUSTERCOLOCATIONPROFILES, NAMESPACES, PRIORITYCLASSES
from shared.kube.watch import WatchTimes
from shared.metric_families import GaugeFamily
from shared.stop import Stop
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

_KIND = ClusterColocationProfile.__name__
PROFILE_REFUSED = EventReason("ColocationProfileInvalid", WARNING, "{problem}")
_LOOK_SECONDS = 2.0  # the API server does not wait for long

_WEBHOOK_REFUSED_PROFILES = GaugeFamily(
    "headroom_manager_webhook_refused_profiles", "ClusterColocationProfiles whose newest version is invalid."
)


class Sources:
    """Safe to read from any thread. An invalid profile is reported once, and its last valid version stays."""

    def __init__(
        self,
        client: Client,
        namespaces: Informer[Namespace],
        standing: PersistentProblems,
        registry: CollectorRegistry,
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._standing = standing
        self._no_profiles = threading.Event()
        self._accepted: dict[str, Profile] = {}
        self._refused: set[str] = set()
        self._profiles = Informer(
            client,
            CLUSTERCOLOCATIONPROFILES,
            ClusterColocationProfile,
            on_change=self._changed,
            times=WatchTimes(jitter=kinds.SLOWLY),
        )
        self._priority_classes = Informer(client, PRIORITYCLASSES, PriorityClassObject)
        self._informers: dict[str, Informer[Any]] = {
            "profiles": self._profiles,
            "priorityclasses": self._priority_classes,
            "namespaces": namespaces,
        }
        _WEBHOOK_REFUSED_PROFILES.register(registry).set_function(lambda: len(self._refused))

    def start(self, loops: Loops) -> None:
        """Watches what only the webhook reads, until the loops end."""
        loops.start("webhook-profiles", self._follow_profiles)
        loops.start("webhook-priorityclasses", self._priority_classes.run)

    def unread(self) -> list[str]:
        """The informers that have not synced yet."""
        waiting = [name for name, informer in self._informers.items() if not informer.synced.is_set()]
        return [name for name in waiting if name != "profiles" or not self._no_profiles.is_set()]

    def profiles(self) -> Sequence[Profile]:
        return list(self._accepted.values())

    def priority_class(self, name: str) -> PriorityClassObject | None:
        return self._priority_classes.get(name)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Raises HeadroomError."""
        found = self._namespaces.get(name)
        if found is None:  # too young for the watch to have shown it
            found = self._client.single_attempt(_LOOK_SECONDS).get(NAMESPACES, name, into=Namespace)
        return found.metadata.labels or {}

    def _follow_profiles(self, stop: Stop) -> None:
        if kinds.wait_for(self._client, CLUSTERCOLOCATIONPROFILES, stop, absent=self._no_profiles.set):
            self._no_profiles.clear()
            self._profiles.run(stop)

    def _changed(self, change: Change[ClusterColocationProfile]) -> None:
        if change.kind is ChangeKind.SYNCED:
            return
        self._refused.discard(change.key)
        self._standing.replace(f"{_KIND} {change.key}", ())
        if change.new is None:
            self._accepted.pop(change.key, None)
            return
        try:
            self._accepted[change.key] = profiles.accepted(change.new)
        except InvalidInput as problem:
            self._refuse(change.new.metadata, problem)

    def _refuse(self, meta: ObjectMeta, problem: InvalidInput) -> None:
        self._refused.add(meta.name)
        logger.error("profile rejected, its last valid version stays in effect: %s", problem)
        regarding = ObjectRef(CLUSTERCOLOCATIONPROFILES.api_version, _KIND, meta.name, "", meta.uid)
        self._standing.replace(f"{_KIND} {meta.name}", [ReportedProblem(regarding, PROFILE_REFUSED, str(problem))])
