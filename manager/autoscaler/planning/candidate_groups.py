"""The groups that autoprovisioning could create for pending pods."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from manager.autoscaler.cloudprovider.contract import Group, GroupSpec
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, Refused, Unsupported
from manager.autoscaler.cluster_state.registry import active_backoff
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.estimator import binpacking, problem
from manager.autoscaler.planning.cluster_view import ClusterView, none_if_unsupported
from manager.autoscaler.scale_up import candidates, groups
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.cached_property import cached_property
from shared.errors import InvalidInput

MOST_TRIED = 50  # label sets of one candidate in one iteration


@dataclass(frozen=True, eq=False)
class CandidateGroups:
    """The groups that autoprovisioning could create."""

    view: ClusterView

    @property
    def is_on(self) -> bool:
        """Whether any group may be created."""
        return self.view.settings.autoprovisioning.enabled and self.groups_left > 0

    def problems(self) -> dict[str, InvalidInput]:
        """The machine types in the settings that the cloud does not have."""
        if self.view.settings.mode is Mode.OBSERVE:
            return {}
        return {
            f"machine type {name}": InvalidInput(
                source="--machine-types", field="machineTypes", value=name, problem="the cloud has none of this name"
            )
            for name in sorted(self.view.settings.autoprovisioning.machine_types.difference(self._types))
        }

    def states(self, classes: Sequence[EquivalenceGroup]) -> list[GroupStatus]:
        """The groups that could be created for these pods, and, with the reason, those that no cloud would make.

        If no candidate helps, the machine types without any labels say why.
        """
        rules = self.view.settings.autoprovisioning
        if not classes or self.view.settings.mode is Mode.OBSERVE:
            return []
        offered = [name for name in self._types if not rules.machine_types or name in rules.machine_types]
        wanted: list[Iterator[GroupSpec]] = []
        plain: list[GroupStatus] = []
        for zone, members in candidates.by_zone(classes).items():
            where = {candidates.LABEL_ZONE: zone} if zone else {}
            bare = {name: self._theoretical(GroupSpec(name, rules.prefix, where)) for name in offered}
            machines = {name: each.template for name, each in bare.items() if each.template is not None}
            wanted += candidates.alternatives(members, machines, rules, where)
            plain += bare.values()
        tried = self._tried(wanted, classes)
        made = [each for each in tried if each.template is not None]
        made = made or [each for each in plain if each.template is not None]
        return [*made, *_refused(each for each in (*plain, *tried) if each.template is None)]

    def _tried(self, wanted: Sequence[Iterator[GroupSpec]], classes: Sequence[EquivalenceGroup]) -> list[GroupStatus]:
        """The best of every candidate; while that is refused, backed off, or fits no pod, the next best."""
        found: list[GroupStatus] = []
        for number in range(MOST_TRIED):
            tried = [(each, self._theoretical(spec)) for each in wanted if (spec := next(each, None)) is not None]
            if not tried:
                break
            made = [state.template for _, state in tried if state.template is not None]
            asked = problem.packing_problem(self.view.current, classes, made)
            wanted = []
            for each, state in tried:
                fits = state.template is not None and binpacking.fit_on_new_node(asked, state.template).flags.any()
                if not fits or state.backoff is not None:
                    wanted.append(each)
                if fits or number == 0:
                    found.append(state)
        return found

    @cached_property
    def _types(self) -> Sequence[str]:
        return none_if_unsupported(self.view.cloud.machine_types) or ()

    @cached_property
    def groups_left(self) -> int:
        """The number of groups that may still be created; unmanaged and refused groups count, too."""
        observed = self.view.cloud.observed
        others = (Group(each, 0, 0, 0) for each in (*observed.unmanaged, *observed.refused))
        return candidates.groups_left(
            (*(each.group for each in observed.groups.values()), *others), self.view.settings.autoprovisioning
        )

    def _theoretical(self, spec: GroupSpec) -> GroupStatus:
        """The group without a template, but with the reason, if it cannot be made."""
        try:
            made = candidates.candidate_state(
                self.view.cloud.theoretical(spec), self.view.daemons, self.view.settings.taints
            )
        except (Refused, Unsupported, InvalidAnswer, InvalidInput) as error:
            name = "-".join((spec.prefix, spec.machine_type, *(("gpu",) if spec.extra_resources else ())))
            return GroupStatus(Group(name, 0, 0, 0, autoprovisioned=True), spec=spec, blocked_reason=error.problem)
        backoff = active_backoff(self.view.reconciled.registry, made.id, self.view.objects.now)
        template = None if made.template is None else self.view.offering(made.template)
        blocked_reason = groups.AT_MOST_GROUPS if made.makes > self.groups_left else ""
        return replace(made, template=template, backoff=backoff, blocked_reason=blocked_reason)


def _refused(states: Iterable[GroupStatus]) -> list[GroupStatus]:
    """The groups that cannot be made, one per id with all reasons."""
    found: dict[str, GroupStatus] = {}
    for each in states:
        known = found.setdefault(each.id, each)
        if each.blocked_reason not in known.blocked_reason.split("; "):
            found[each.id] = replace(known, blocked_reason=f"{known.blocked_reason}; {each.blocked_reason}")
    return list(found.values())
