"""`headroom plan --manager`: the running manager's present decision, queried as the kubeconfig's user.

The manager plans with its own settings and knowledge. A request can add pods from files, and override a few settings.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from deploy import dumps
from deploy.access import ClusterContext
from deploy.manager_api import ManagerApi
from manager.autoscaler.http.plan_request import Overrides
from manager.autoscaler.reporting.answers import Plan
from manager.autoscaler.reporting.group_rows import Groups
from shared import settings as settings_module
from shared.api.core import Pod
from shared.errors import InvalidInput

_OVERRIDES = frozenset(Overrides.__struct_fields__)
# Options for the command, not for the manager.
_OWN = frozenset({"manager", "file", "output", "all_nodes", "top", "kubeconfig", "context", "namespace"})


def overrides(settings: msgspec.Struct, sources: Mapping[str, str]) -> dict[str, Any]:
    """The given settings, by `sources`, that the manager uses instead of its own for this request.

    Raises InvalidInput for a setting that a request cannot carry.
    """
    for name, source in sources.items():
        if name not in _OVERRIDES | _OWN:
            known = ", ".join(sorted("--" + each.replace("_", "-") for each in _OVERRIDES))
            problem = f"a manager plans with its own settings; others for once can be {known}"
            field, value = settings_module.key(name), getattr(settings, name)
            raise InvalidInput(source=source, field=field, value=value, problem=problem)
    return {name: getattr(settings, name) for name in sources if name in _OVERRIDES}


def plan(
    url: str, *, access: ClusterContext, namespace: str, files: Sequence[str], overrides: Mapping[str, Any]
) -> tuple[Plan, Groups]:
    """The manager's answer, and the groups as it sees them; `namespace` is its own. Raises HeadroomError."""
    dump = dumps.read([Path(each) for each in files], {"Pod": Pod}, lambda _kind, _head: True)
    if dump.unused:
        problem = "there is no Pod in it, and a manager accepts only further pods"
        raise InvalidInput(source="-f", field="file", value=dump.unused[0], problem=problem)
    with closing(ManagerApi(url, access, namespace)) as api:
        return api.plan({"pods": dump.of(Pod), "overrides": overrides}, Plan), api.read("/api/v1/groups", Groups)
