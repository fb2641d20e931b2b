"""The free amounts of nodes under filling, and how many equal pods fit on each."""

import numpy as np

from manager.autoscaler.snapshot.cluster import Flags, Integers

Asked = tuple[tuple[int, int], ...]  # the row and amount of each resource that one pod requests, `pods` first


_FIRST_SPARE = 64  # columns for new nodes; doubled when used up


class NodeRoom:
    """A row per resource and a column per node; the room of a node is how many pods its free amounts allow."""

    def __init__(self, free: Integers, fresh: Integers | None = None) -> None:
        """`free` is copied; `fresh` is what every new node has free, None where none will come."""
        self.known: int = free.shape[1]
        self.size: int = self.known
        columns = self.known + (0 if fresh is None else _FIRST_SPARE)
        self._free: Integers = np.empty((len(free), columns), np.int64)
        self._free[:, : self.known] = free
        self._rows = list(self._free)  # views, one per resource
        self.used: Flags = np.zeros(columns, np.bool_)
        self._fresh = fresh
        self._fresh_amounts: list[int] = [] if fresh is None else fresh.tolist()
        self._ceiling = [0] * len(free)  # an upper bound on the free amount of any new node, by resource

    def of_known(self) -> Integers:
        """The free amounts of the snapshot's nodes."""
        return self._free[:, : self.known]

    def of_node(self, node: int) -> Integers:
        """The free amounts of one node."""
        return self._free[:, node]

    def sufficient(self, more: Integers) -> Integers | None:
        """By resource, the free amount of a new node that suffices for the most that any took, plus `more`.

        None without new nodes, or if one of them has less.
        """
        if self._fresh is None or self.size == self.known:
            return None
        least = self._free[:, self.known : self.size].min(axis=1)
        return self._fresh - least + more if (more <= least).all() else None

    def add(self, count: int) -> None:
        """Adds `count` new nodes."""
        assert self._fresh is not None
        start, self.size = self.size, self.size + count
        columns = self._free.shape[1]
        if self.size > columns:
            more = max(self.size, 2 * columns) - columns
            self._free = np.concatenate((self._free, np.empty((len(self._free), more), np.int64)), axis=1)
            self._rows = list(self._free)
            self.used = np.concatenate((self.used, np.zeros(more, np.bool_)))
        self._free[:, start : self.size] = self._fresh[:, None]
        self._ceiling = self._fresh_amounts.copy()

    def fits(self, asked: Asked, start: int, stop: int | None = None) -> Flags:
        """Which nodes from `start` on fit at least one such pod."""
        rows, stop = self._rows, self.size if stop is None else stop
        row, amount = asked[-1]
        fits: Flags = rows[row][start:stop] >= amount
        for row, amount in asked[:-1]:
            fits &= rows[row][start:stop] >= amount
        return fits

    def is_above_new_nodes(self, asked: Asked) -> bool:
        """Whether such a pod is known to fit on no new node."""
        ceiling = self._ceiling
        return any(ceiling[row] < amount for row, amount in asked)

    def measure_new_nodes(self, asked: Asked, start: int) -> None:
        """Learns what new nodes have free at most, after a pod has fitted on none of the nodes from `start` on."""
        if self.size > start:
            for row, _ in asked:
                self._ceiling[row] = int(np.maximum.reduce(self._rows[row][start : self.size]))

    def room(self, asked: Asked, nodes: Integers) -> Integers:
        """The number of such pods that fit on each of these nodes."""
        rows = self._rows
        room: Integers = rows[0][nodes]  # every pod takes one of `pods`
        for row, amount in asked[1:]:
            np.minimum(room, rows[row][nodes] // amount, out=room)
        return room

    def room_on(self, asked: Asked, node: int) -> int:
        """The number of such pods that fit on one node."""
        return min(int(self._rows[row][node]) // amount for row, amount in asked)

    def room_on_fresh(self, asked: Asked) -> int:
        """The number of such pods that fit on a new node."""
        return min(self._fresh_amounts[row] // amount for row, amount in asked)

    def shares(self, asked: Asked, nodes: Integers) -> Integers:
        """By requested resource besides `pods`: the share of each node's free amount that one such pod takes."""
        return np.array([amount / self._rows[row][nodes] for row, amount in asked[1:]])

    def take(self, asked: Asked, nodes: Integers, counts: Integers) -> None:
        """Puts pods on nodes."""
        rows = self._rows
        if len(nodes) == 1:  # most placements are on one node, and one number is subtracted faster than an array of one
            node, count = int(nodes[0]), int(counts[0])
            for row, amount in asked:
                rows[row][node] -= count * amount
            self.used[node] = True
        else:
            for row, amount in asked:
                rows[row][nodes] -= counts * amount
            self.used[nodes] = True

    def give_back(self, asked: Asked, nodes: Integers, counts: Integers) -> None:
        """Takes pods off nodes."""
        self.take(tuple([(row, -amount) for row, amount in asked]), nodes, counts)
