"""The protocol of expanders, which plug-ins implement.

The manager finds each name of `--expander` among the entry points of the group `headroom.expanders` (see `plugins`).
The entry point loads a callable that takes the autoscaler's settings and returns an `Expander`. The built-in expanders
are entry points of the same group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from manager.autoscaler.expander.option import Option
from manager.autoscaler.expander.priority import Priorities
from manager.autoscaler.expander.ranking import PricedOption


@dataclass(frozen=True)
class ExpanderContext:
    """The data that expanders may read besides the options.

    `ranks` are the cost-based ranks of all options by group, `priorities` those of the priority expander's
    ConfigMap.
    """

    ranks: Mapping[str, PricedOption] = field(default_factory=dict)
    priorities: Priorities = field(default_factory=Priorities)


class Expander(Protocol):
    """Chooses between options. It keeps no state that a decision depends on: plan requests call it, too.

    The manager records an exception or an invalid answer with the decision, and goes on with all options.
    """

    def best_options(self, options: Sequence[Option], context: ExpanderContext) -> Sequence[Option]:
        """Those of the `options` that are equally good and better than the rest; none to add no node at all.

        It is not called for a single option. The next expander chooses among the answer, and chance decides at the end.
        """
        ...
