"""The areas, in the order of the list."""

from tests.parity.behaviours import Area
from tests.parity.behaviours.conflicts import conflicts
from tests.parity.behaviours.customs import customs
from tests.parity.behaviours.deletions import deletions
from tests.parity.behaviours.duties import events, evictions, leases
from tests.parity.behaviours.errors import errors
from tests.parity.behaviours.kubectls import kubectl
from tests.parity.behaviours.lists import lists, selectors
from tests.parity.behaviours.patches import patches
from tests.parity.behaviours.subresources import subresources
from tests.parity.behaviours.tables import tables
from tests.parity.behaviours.watches import watches
from tests.parity.behaviours.webhooks import registrations, webhooks

AREAS: tuple[Area, ...] = (
    errors, conflicts, patches, subresources, deletions, watches, selectors, tables, customs, leases,
    evictions, events, kubectl, lists, registrations, webhooks,
)  # fmt: skip
