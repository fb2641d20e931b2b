"""What launched NodeClaims and their Nodes report of the catalogue's machine types."""

from collections.abc import Collection, Mapping, Set

from manager.autoscaler.cloudprovider.karpenter import claims
from manager.autoscaler.cloudprovider.karpenter.catalogue import Catalogue
from manager.autoscaler.cloudprovider.karpenter.claims import NodeClaim
from manager.autoscaler.cloudprovider.karpenter.config import KarpenterGroup
from manager.autoscaler.cloudprovider.karpenter.reading import KarpenterReader
from manager.autoscaler.cloudprovider.node_template import LABEL_MACHINE_TYPE
from shared.api.core import Node

CarriedLabels = Mapping[str, str | None]


class TypeReports:
    """Raises the client's errors. `before` is what was reported before, by machine type."""

    def __init__(self, reader: KarpenterReader) -> None:
        self._reader = reader
        self._compared: set[str] = set()  # machine types of which a Node's amounts have been read
        self._complete: dict[str, dict[str, str | None]] = {}  # by machine type, what no claim and its Node carries

    def amounts(
        self, before: Mapping[str, Mapping[str, int]], listed: Collection[NodeClaim]
    ) -> dict[str, dict[str, int]]:
        """The smaller of what claims and Nodes say; of each machine type one Node is read, once."""
        found = {}
        for machine_type, amounts in claims.latest_reports(listed).items():
            known = before.get(machine_type, {}) if machine_type in self._compared else {}
            if machine_type not in self._compared and claims.first_initialized(listed, machine_type) is not None:
                node = self._node(listed, machine_type)
                known = claims.read_amounts((node.status.allocatable if node is not None else None) or {})
                self._compared.add(machine_type)
            found[machine_type] = {name: min(amount, known.get(name, amount)) for name, amount in amounts.items()}
        return found

    def labels(
        self,
        before: Mapping[str, CarriedLabels],
        listed: Collection[NodeClaim],
        catalogue: Catalogue,
        groups: Mapping[str, KarpenterGroup],
    ) -> dict[str, dict[str, str | None]]:
        """Of the labels that the catalogue gives to a type, those that a node of it has; None for what it lacks.

        What no claim carries may be the Node's alone, and come late, so a Node that lacks a label is read every time.
        """
        found = {}
        for name, machine in catalogue.types.items():
            wanted = machine.labels.keys() - {LABEL_MACHINE_TYPE}
            known = {key: value for key, value in before.get(name, {}).items() if key in wanted}
            launched = claims.latest_launched(listed, name)
            if launched is not None:
                group = groups.get(launched.group)
                known |= self._carried(launched, listed, wanted - (group.labels if group is not None else {}).keys())
            if known:
                found[name] = known
        return found

    def _carried(self, launched: NodeClaim, listed: Collection[NodeClaim], wanted: Set[str]) -> dict[str, str | None]:
        name = launched.offering.machine_type
        carried = {key: value for key, value in (launched.metadata.labels or {}).items() if key in wanted}
        lacking = wanted - carried.keys()
        if not lacking:
            return dict(carried)
        complete = self._complete.get(name, {})
        if not lacking <= complete.keys() and (node := self._node(listed, name)) is not None:
            on_node = node.metadata.labels or {}
            complete = {key: on_node.get(key) for key in lacking}
            if None not in complete.values():
                self._complete[name] = complete
        return {key: complete[key] for key in lacking if key in complete} | carried

    def _node(self, listed: Collection[NodeClaim], machine_type: str) -> Node | None:
        up = claims.first_initialized(listed, machine_type)
        return None if up is None else self._reader.node(up.status.node_name)
