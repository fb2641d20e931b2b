"""The groups that autoprovisioning could create for pending pods."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from manager.autoscaler.cloudprovider.contract import Group, GroupSpec
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, Refused, Unsupported
from manager.autoscaler.cluster_state.registry import active_backoff
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.estimator import binpacking, problem
from manager.autoscaler.planning.cluster_view import ClusterView
from manager.autoscaler.scale_up import candidates, groups
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.errors import InvalidInput

MOST_TRIED = 50  # label sets of one candidate in one iteration


def problems(view: ClusterView) -> dict[str, InvalidInput]:
    """The machine types in the settings that the cloud does not have."""
    if view.settings.mode is Mode.OBSERVE:
        return {}
    return {
        f"machine type {name}": InvalidInput(
            source="--machine-types", field="machineTypes", value=name, problem="the cloud has none of this name"
        )
        for name in sorted({*view.settings.autoprovisioning.machine_types} - {*view.machine_types})
    }


def states(view: ClusterView, classes: Sequence[EquivalenceGroup]) -> list[GroupStatus]:
    """The groups that could be created for these pods, and, with the reason, those that no cloud would make.

    If no candidate helps, the machine types without any labels say why.
    """
    rules = view.settings.autoprovisioning
    if not classes or view.settings.mode is Mode.OBSERVE:
        return []
    offered = [name for name in view.machine_types if not rules.machine_types or name in rules.machine_types]
    wanted: list[Iterator[GroupSpec]] = []
    plain: list[GroupStatus] = []
    for zone, members in candidates.by_zone(classes).items():
        where = {candidates.LABEL_ZONE: zone} if zone else {}
        bare = {name: _theoretical(view, GroupSpec(name, rules.autoprovisioning_prefix, where)) for name in offered}
        machines = {name: each.template for name, each in bare.items() if each.template is not None}
        wanted += candidates.alternatives(members, machines, rules, where)
        plain += bare.values()
    tried = _tried(view, wanted, classes)
    made = [each for each in tried if each.template is not None]
    made = made or [each for each in plain if each.template is not None]
    return [*made, *_refused(each for each in (*plain, *tried) if each.template is None)]


def _tried(
    view: ClusterView, wanted: Sequence[Iterator[GroupSpec]], classes: Sequence[EquivalenceGroup]
) -> list[GroupStatus]:
    """The best of every candidate; while that is refused, backed off, or fits no pod, the next best."""
    found: list[GroupStatus] = []
    for number in range(MOST_TRIED):
        tried = [(each, _theoretical(view, spec)) for each in wanted if (spec := next(each, None)) is not None]
        if not tried:
            break
        made = [state.template for _, state in tried if state.template is not None]
        asked = problem.packing_problem(view.current, classes, made)
        wanted = []
        for each, state in tried:
            fits = state.template is not None and binpacking.fit_on_new_node(asked, state.template).flags.any()
            if not fits or state.backoff is not None:
                wanted.append(each)
            if fits or number == 0:
                found.append(state)
    return found


def _theoretical(view: ClusterView, spec: GroupSpec) -> GroupStatus:
    """The group without a template, but with the reason, if it cannot be made."""
    try:
        made = candidates.candidate_state(view.cloud.theoretical(spec), view.daemons, view.settings.taints)
    except (Refused, Unsupported, InvalidAnswer, InvalidInput) as error:
        name = "-".join((spec.prefix, spec.machine_type, *(("gpu",) if spec.extra_resources else ())))
        return GroupStatus(Group(name, 0, 0, 0, autoprovisioned=True), spec=spec, blocked_reason=error.problem)
    backoff = active_backoff(view.reconciled.registry, made.id, view.objects.now)
    template = None if made.template is None else view.offering(made.template)
    blocked_reason = groups.AT_MOST_GROUPS if made.makes > view.groups_left else ""
    return replace(made, template=template, backoff=backoff, blocked_reason=blocked_reason)


def _refused(states: Iterable[GroupStatus]) -> list[GroupStatus]:
    """The groups that cannot be made, one per id with all reasons."""
    found: dict[str, GroupStatus] = {}
    for each in states:
        known = found.setdefault(each.id, each)
        if each.blocked_reason not in known.blocked_reason.split("; "):
            found[each.id] = replace(known, blocked_reason=f"{known.blocked_reason}; {each.blocked_reason}")
    return list(found.values())
