"""What the node's series are of: each entity has two, cpu in cores and memory in bytes."""

from typing import NamedTuple

from shared.names import PriorityClass

NODE = "__node__"
SYSTEM = "__node-sys__"
# What a lender of capacity has to keep for itself: prod and class-less pods together with the system.
PROD_PEAK = "__node-prod-peak__"


class Usage(NamedTuple):
    """What something uses of the node at one instant, or on the average of an interval."""

    cpu_cores: float
    memory_bytes: float

    def plus(self, other: "Usage") -> "Usage":
        return Usage(self.cpu_cores + other.cpu_cores, self.memory_bytes + other.memory_bytes)

    def minus(self, other: "Usage") -> "Usage":
        """The difference, not below 0: readings of different counters never agree to the last digit."""
        return Usage(
            max(0.0, self.cpu_cores - other.cpu_cores),
            max(0.0, self.memory_bytes - other.memory_bytes),
        )


NOTHING = Usage(0.0, 0.0)


def of_class(priority_class: PriorityClass) -> str:
    """The entity of all pods of a class together; Koordinator's item UIDs."""
    return f"__node-{priority_class}__"


NODE_ENTITIES = frozenset({NODE, SYSTEM, PROD_PEAK, *map(of_class, PriorityClass)})
