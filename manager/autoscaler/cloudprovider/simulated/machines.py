"""Carries out the state of the simulated cloud: creates and deletes Nodes when due, makes them Ready, and renews
leases.

Every step may run twice, so that a process killed within one starts it again.
"""

import logging
from collections.abc import Iterator

from msgspec.structs import replace

from manager.autoscaler.cloudprovider.contract import ErrorClass
from manager.autoscaler.cloudprovider.simulated import cloud_state, fake_nodes
from manager.autoscaler.cloudprovider.simulated.cloud_state import GroupEntry, InstanceEntry, SimulatedState
from manager.autoscaler.cloudprovider.simulated.config import GroupConfig
from manager.autoscaler.cloudprovider.simulated.offer import MachineOffer
from manager.autoscaler.cloudprovider.simulated.state_store import SimulatedStateStore
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import HeadroomError, InvalidInput
from shared.kube import node_heartbeat
from shared.kube.client import Client, Patch
from shared.kube.errors import AlreadyExists, BadRequest, Conflict, Invalid, LeadershipLost, NotFound
from shared.kube.informer import Informer
from shared.kube.resources import CSINODES, NODES
from shared.kube.watch import WatchScope
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.5
BEAT_SECONDS = 10.0
BATCH = 200  # Nodes that are created or deleted before the state is written


class Machines:
    """One per process that runs the cloud."""

    def __init__(self, client: Client, store: SimulatedStateStore, offer: MachineOffer, clock: Clock) -> None:
        self._client = client
        self._store = store
        self._offer = offer
        self._clock = clock
        self._informer = Informer(
            client, NODES, Node, scope=WatchScope(label_selector=f"{fake_nodes.LABEL_CLOUD}={fake_nodes.CLOUD}")
        )

    def start(self, loops: Loops) -> None:
        loops.start("simulated-cloud-nodes", self._informer.run)
        loops.every("simulated-cloud", lambda: TICK_SECONDS, self.tick)
        loops.every("simulated-cloud-heartbeats", lambda: BEAT_SECONDS, self.beat)

    def tick(self) -> None:
        """Does what is due; the next tick repeats what the API refuses."""
        if not self._informer.synced.is_set():
            return
        try:
            found = self._store.read()
            groups = self._offer.groups(found)
            for name, entry in found.groups.items():
                self._settle(name, entry, groups.get(name))
        except LeadershipLost:
            return  # the machines of the leader's process go on
        except HeadroomError as error:
            logger.warning("the simulated cloud is paused: %s", error)

    def beat(self) -> None:
        """Keeps every Node alive."""
        for node in self._informer.values():
            meta = node.metadata
            if fake_nodes.belongs_to(node) is None:
                continue
            try:
                node_heartbeat.renew_lease(self._client, meta.name, meta.uid, self._clock.now())
            except LeadershipLost:
                return
            except HeadroomError as error:
                logger.warning("heartbeat not written: %s", error, extra={"node": meta.name})

    def _settle(self, name: str, entry: GroupEntry, group: GroupConfig | None) -> None:
        now = self._clock.now()
        registered: set[str] = set()
        failed: dict[str, str] = {}
        gone: set[str] = set()
        for each in entry.instances:
            if len(registered) + len(gone) >= BATCH:
                break
            is_due = each.due is not None and each.due <= now
            if each.phase == cloud_state.CREATING and is_due and group is not None:
                try:
                    self._create(each.name, group, entry.target, now)
                    registered.add(each.name)
                except (Invalid, BadRequest, InvalidInput, AlreadyExists) as error:
                    failed[each.name] = str(error)
            elif each.phase == cloud_state.DELETING and is_due:
                self._delete(each.name, name)
                gone.add(each.name)
            elif each.phase == cloud_state.RUNNING:
                node = self._node(each.name, name)
                if node is None:
                    gone.add(each.name)
                elif is_due:
                    self._make_ready(node, now)
        if registered or failed or gone:
            ready_at = now + (group.ready_seconds if group is not None else 0.0)

            def step(current: SimulatedState) -> SimulatedState:
                if name not in current.groups:
                    return current
                after = cloud_state.remove_nodes(
                    cloud_state.add_registered(current.groups[name], registered, ready_at), gone
                )
                return current.having(name, replace(after, instances=tuple(_failing(after, failed))))

            self._store.change(step)

    def _create(self, name: str, group: GroupConfig, target: int, now: float) -> None:
        template = fake_nodes.node(name, group, self._offer.cloud)
        body = fake_nodes.registration(template, target, now, ready=group.ready_seconds == 0)
        try:
            uid = self._client.create(NODES, body, repeatable=True).uid
            logger.info("simulated node created", extra={"node": name, "group": group.name})
        except AlreadyExists:
            node = self._node(name, group.name)
            if node is None:
                raise  # another object has the name
            uid = node.metadata.uid  # created earlier, and not recorded
        self._create_csi_node(template, uid)

    def _create_csi_node(self, template: Node, uid: str) -> None:
        body = fake_nodes.csi_node(template, uid)
        if body is None:
            return
        try:
            self._client.create(CSINODES, body, repeatable=True)
        except (AlreadyExists, NotFound):
            pass  # the embedded API server lacks the kind
        except Invalid as error:
            logger.warning("CSINode not created: %s", error, extra={"node": template.metadata.name})

    def _delete(self, name: str, group: str) -> None:
        node = self._node(name, group)
        if node is None:
            return
        try:
            self._client.delete(NODES, name, uid=node.metadata.uid)
        except (Conflict, NotFound):
            return
        logger.info("simulated node deleted", extra={"node": name, "group": group})

    def _node(self, name: str, group: str) -> Node | None:
        """The group's Node with this name. A Node that the cache does not have yet may still exist."""
        node = self._informer.get(name)
        if node is None:
            try:
                node = self._client.get(NODES, name, into=Node)
            except NotFound:
                return None
        return node if fake_nodes.belongs_to(node) == group else None

    def _make_ready(self, node: Node, now: float) -> None:
        meta = node.metadata
        taints = tuple(node.spec.taints or ())
        rest = tuple(taint for taint in taints if taint.key != fake_nodes.NOT_READY.key)
        try:
            if not fake_nodes.is_ready(node):
                status = {"conditions": node_heartbeat.conditions(now)}
                self._client.patch(NODES, meta.name, {"status": status}, kind=Patch.STRATEGIC, subresource="status")
            elif rest != taints:
                version = {"resourceVersion": meta.resource_version}
                self._client.patch(NODES, meta.name, {"metadata": version, "spec": {"taints": rest}})
        except (Conflict, NotFound):
            pass  # it has changed, or was deleted; the next tick sees how


def _failing(entry: GroupEntry, failed: dict[str, str]) -> Iterator[InstanceEntry]:
    for each in entry.instances:
        if each.phase == cloud_state.CREATING and each.name in failed:
            yield InstanceEntry(each.name, cloud_state.FAILED, None, ErrorClass.OTHER, "INVALID", failed[each.name])
        else:
            yield each
