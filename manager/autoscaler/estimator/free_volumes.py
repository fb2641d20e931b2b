"""Which free PersistentVolumes pods have taken, while pods are placed.

kube-scheduler's VolumeBinding: each claim of a pod gets the smallest free volume that its node reaches, the smallest
claim first, or a new volume where the class provisions one. Pods that share a claim go to where its volume is reached.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from manager.autoscaler.snapshot import predicates
from manager.autoscaler.snapshot.cluster import Flags, Integers
from manager.autoscaler.snapshot.volume_choices import ChosenClaim, NewNodeVolumes, VolumeChoices
from manager.autoscaler.snapshot.volumes import FreeVolume, FreeVolumes


class FreeVolumeRoom:
    """By candidates: how many free ones each node of the snapshot reaches. Copies share what they do not change."""

    def __init__(
        self, choices: VolumeChoices, fresh: NewNodeVolumes | None, after: "FreeVolumeRoom | None" = None
    ) -> None:
        """Starts with the snapshot, or with the result of `after`, which has no new nodes."""
        self._choices = choices
        self._fresh = fresh
        self._known = len(choices.nodes)
        self._taken: dict[str, FreeVolume | None] = {} if after is None else dict(after._taken)  # by key of the claim
        self._used: dict[str, str] = {} if after is None else dict(after._used)  # names of volumes, and their claims
        self._users: dict[str, int] = {} if after is None else dict(after._users)  # pods, by key of the claim
        self._room: dict[FreeVolumes, Integers] = {} if after is None else dict(after._room)
        for claims, nodes in choices.placed if after is None else ():
            self.count(claims, nodes, np.ones(len(nodes), np.int64))

    def open_nodes(self, claims: tuple[ChosenClaim, ...], start: int, stop: int) -> Flags:
        """Which nodes of a range have volumes for these claims of one more pod."""
        known = np.ones(self._known, np.bool_)
        for each in claims:
            known &= self._open_known(each)
        if len(claims) > 1:  # which may compete for one volume
            for row in known.nonzero()[0].tolist():
                known[row] = self._match(claims, row) is not None
        found: Flags = np.empty(stop - start, np.bool_)
        of_known = max(0, min(stop, self._known) - start)
        found[:of_known] = known[start : start + of_known]
        if of_known < len(found):
            found[of_known:] = self._match(claims, self._known) is not None
        return found

    def count(self, claims: tuple[ChosenClaim, ...], nodes: Integers, counts: Integers) -> None:
        """Adds pods with these claims on these nodes; negative counts take them off."""
        for node, count in zip(nodes.tolist() if claims else (), counts.tolist(), strict=False):
            matched = dict(self._match(claims, node) or ())
            for each in claims:
                before = self._users.get(each.key, 0)
                self._users[each.key] = before + count
                if before == 0 and count > 0:
                    self._take(each, matched.get(each.key))
                elif before > 0 and before + count == 0:
                    self._give_back(each.key)

    def refusal(self, claims: tuple[ChosenClaim, ...], node: int) -> str | None:
        """Why a node has no volumes for these claims, in kube-scheduler's words."""
        if not claims or self._match(claims, node) is not None:
            return None
        names = ", ".join(f'"{each.claim.claim}"' for each in claims)
        return f"{predicates.NO_VOLUME} for claim {names}: other pods take those that it reaches"

    def _open_known(self, each: ChosenClaim) -> Flags:
        found: Flags = np.zeros(self._known, np.bool_)
        if each.key in self._taken:
            volume = self._taken[each.key]
            found[self._choices.rows(None if volume is None else volume.nodes)] = True
            return found
        return (self._free(each.free) > 0) | self._choices.provisioning(each.claim)

    def _free(self, free: FreeVolumes) -> Integers:
        if free not in self._room:
            room = np.zeros(self._known, np.int64)
            for volume in free.volumes:
                if volume.name not in self._used:
                    room[self._choices.rows(volume.nodes)] += 1
            self._room[free] = room
        return self._room[free]

    def _match(self, claims: tuple[ChosenClaim, ...], node: int) -> list[tuple[str, FreeVolume | None]] | None:
        """The volume that each claim gets on a node, None for a new one; None if a claim gets none."""
        reaches, provisions = self._checks(node)
        used: Mapping[str, str] | set[str] = self._used
        if len(claims) > 1:
            used = set(used)
        found: list[tuple[str, FreeVolume | None]] = []
        for each in claims:
            if each.key in self._taken:
                volume = self._taken[each.key]
                if volume is not None and not reaches(volume):
                    return None
                found.append((each.key, volume))
                continue
            volume = next((v for v in each.free.volumes if v.name not in used and reaches(v)), None)
            if volume is None and not provisions(each):
                return None
            if volume is not None and isinstance(used, set):
                used.add(volume.name)
            found.append((each.key, volume))
        return found

    def _checks(self, node: int) -> tuple[Callable[[FreeVolume], bool], Callable[[ChosenClaim], bool]]:
        """Whether the node reaches a volume, and whether a claim gets a new one there."""
        if node < self._known:
            choices = self._choices
            return lambda volume: choices.reaches(node, volume), lambda each: choices.provisions(node, each.claim)
        fresh = self._fresh
        assert fresh is not None
        return lambda volume: volume.name in fresh.reached, lambda each: each.key in fresh.provisioned

    def _take(self, claim: ChosenClaim, volume: FreeVolume | None) -> None:
        self._taken[claim.key] = volume
        if volume is not None:
            self._used[volume.name] = claim.key
            self._change(volume, -1)

    def _give_back(self, key: str) -> None:
        volume = self._taken.pop(key)
        if volume is not None:
            del self._used[volume.name]
            self._change(volume, 1)

    def _change(self, volume: FreeVolume, amount: int) -> None:
        rows = self._choices.rows(volume.nodes)
        for free in self._having(volume):
            room = self._room[free].copy()
            room[rows] += amount
            self._room[free] = room

    def _having(self, volume: FreeVolume) -> Iterator[FreeVolumes]:
        return (free for free in list(self._room) if volume.name in free.names)
