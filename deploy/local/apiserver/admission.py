"""The cluster's own admission of new objects: whether the namespace accepts them, and the priority of pods."""

from deploy.local.apiserver import status
from deploy.local.apiserver.kinds import BY_RESOURCE, ApiKind
from deploy.local.apiserver.objects import JsonObject, dig
from deploy.local.apiserver.store import Store

_PRIORITY_CLASSES = "scheduling.k8s.io/priorityclasses"


class Admission:
    """Decides from the content of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, kind: ApiKind, namespace: str, name: str, obj: JsonObject) -> None:
        """Completes a new object. Raises StatusError (403, 404)."""
        if kind.namespaced:
            found = self._store.found(BY_RESOURCE["/namespaces"], "", namespace)
            if found.load()["metadata"].get("deletionTimestamp"):
                why = f"unable to create new content in namespace {namespace} because it is being terminated"
                cause = {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
                raise status.forbidden(kind.group, kind.plural, name, why, [cause])
        if kind.resource == "/pods":
            self._give_priority(name, obj)

    def _give_priority(self, name: str, pod: JsonObject) -> None:
        """Sets the priority from the pod's class; the pod may specify the same value, but no other."""
        spec = pod.get("spec")
        wanted = dig(pod, "spec", "priorityClassName") or ""
        if not isinstance(spec, dict) or not isinstance(wanted, str):
            return
        chosen = self._priority_class(wanted)
        if wanted and chosen is None:
            raise status.forbidden("", "pods", name, f"no PriorityClass with name {wanted} was found")
        value, policy = 0, "PreemptLowerPriority"
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
            value, policy = chosen["value"], chosen.get("preemptionPolicy") or policy
        for field_, computed in (("priority", value), ("preemptionPolicy", policy)):
            given = spec.get(field_)
            if given is None:
                spec[field_] = computed
            elif type(given) is type(computed) and given != computed:
                raise status.forbidden(
                    "", "pods", name, f"the {field_} is {given}, but computed {computed} by its class"
                )

    def _priority_class(self, name: str) -> JsonObject | None:
        """The class with that name; for an empty name, the default class with the lowest value."""
        if name:
            found = self._store.get(_PRIORITY_CLASSES, name)
            return None if found is None else found.load()
        defaults = (record.load() for record in self._store.ordered(_PRIORITY_CLASSES))
        return min((item for item in defaults if item.get("globalDefault")), key=lambda c: c["value"], default=None)
