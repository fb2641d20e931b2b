"""Every metric of agent and manager: importing what these processes run declares all of them."""

from agent import main as agent_main
from manager import main as manager_main
from manager.autoscaler import loop
from manager.nodeside.webhook import serving, webhook
from shared import metric_families
from shared.metric_families import Family

DECLARING = (agent_main, manager_main, loop, serving, webhook)  # a manager imports the last three only where they run


def families() -> tuple[Family, ...]:
    """Sorted by name."""
    return tuple(family for _, family in sorted(metric_families.DECLARED.items()))
