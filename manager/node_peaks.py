"""What the node side predicts of nodes; loaded by every manager."""

from dataclasses import dataclass

from shared.quantity import Resources


@dataclass(frozen=True, slots=True)
class NodePeaks:
    """What a node is predicted to need at most: its pods above Mid together with its system; and what its Mid pods
    were last seen to use. Both are of the pods that were there when it was `reported_at`, in Unix seconds.
    """

    prod: Resources
    mid: Resources
    reported_at: float
