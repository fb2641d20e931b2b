"""The served kinds: the built-in ones and those that CustomResourceDefinitions add at run time."""

from collections.abc import Iterator

from deploy.local.apiserver import status
from deploy.local.apiserver.kinds import BY_RESOURCE, ApiKind
from deploy.local.apiserver.objects import JsonObject, dig, dotted
from deploy.local.apiserver.schema import Schema
from deploy.local.apiserver.status import FieldError

_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


class KindRegistry:
    """Finds kinds by path, by object and by collection."""

    def __init__(self) -> None:
        self._by_resource = dict(BY_RESOURCE)

    def find(self, group: str, version: str, plural: str) -> ApiKind | None:
        kind = self._by_resource.get(f"{group}/{plural}")
        return kind if kind is not None and kind.version == version else None

    def of_object(self, api_version: str, kind: str) -> ApiKind | None:
        wanted = (api_version, kind)
        return next((each for each in self.kinds() if (each.api_version, each.kind) == wanted), None)

    def of_resource(self, resource: str) -> ApiKind | None:
        return self._by_resource.get(resource)

    def kinds(self) -> Iterator[ApiKind]:
        yield from list(self._by_resource.values())

    def define(self, definition: JsonObject) -> None:
        """Serves (or replaces) the kind of a definition in which `definition_errors` found no errors."""
        kind = kind_of(definition)
        self._by_resource[kind.resource] = kind

    def undefine(self, definition: JsonObject) -> None:
        self._by_resource.pop(kind_of(definition).resource, None)

    def fields(self, resource: str, obj: JsonObject) -> dict[str, str]:
        """The selectable fields of an object as text, which field selectors compare."""
        kind = self._by_resource.get(resource)
        meta = obj["metadata"]
        found = {"metadata.name": meta["name"], "metadata.namespace": meta.get("namespace", "")}
        for label in kind.selectable if kind else ():
            found[label] = _field_text(obj, label)
        return found


def _field_text(obj: JsonObject, label: str) -> str:
    if label == "source":
        return str(dig(obj, "source", "component") or obj.get("reportingComponent") or "")
    value = dotted(obj, label)
    if value is None:
        return "false" if label in ("spec.unschedulable", "spec.hostNetwork") else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def kind_of(definition: JsonObject) -> ApiKind:
    """The kind that a definition describes, at its storage version (the only one served)."""
    spec = definition["spec"]
    names = spec["names"]
    version = next(version for version in spec["versions"] if version.get("storage"))
    subresources = version.get("subresources") or {}
    return ApiKind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in subresources,
        generation=True,
        subresources=("scale",) if dig(subresources, "scale", "specReplicasPath") == ".spec.replicas" else (),
        selectable=tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()),
        unconditional_update=False,
        columns=version.get("additionalPrinterColumns") or (_AGE,),
        schema=Schema(dig(version, "schema", "openAPIV3Schema") or {"type": "object"}),
    )


def definition_errors(definition: JsonObject) -> Iterator[FieldError]:
    """Why a CustomResourceDefinition cannot be served."""
    spec = definition.get("spec") or {}
    names = spec.get("names") or {}
    missing = [f"spec.{field}" for field in ("group", "scope", "versions") if not spec.get(field)]
    missing += [f"spec.names.{field}" for field in ("plural", "kind") if not names.get(field)]
    for field in missing:
        yield status.required(field)
    if missing:
        return
    if spec["scope"] not in ("Cluster", "Namespaced"):
        yield status.unsupported("spec.scope", spec["scope"], ("Cluster", "Namespaced"))
    expected = f"{names['plural']}.{spec['group']}"
    if definition["metadata"].get("name") != expected:
        name = definition["metadata"].get("name")
        yield status.invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if sum(bool(version.get("storage")) for version in spec["versions"]) != 1:
        found = [version.get("name") for version in spec["versions"]]
        yield status.invalid_value("spec.versions", found, "must have exactly one version marked as storage version")
    for index, version in enumerate(spec["versions"]):
        if not dig(version, "schema", "openAPIV3Schema"):
            yield status.required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required")


def accept(definition: JsonObject, now: str) -> None:
    """Sets a definition's defaults and the conditions that report it as served."""
    spec = definition["spec"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    old = {c["type"]: c for c in dig(definition, "status", "conditions") or ()}
    conditions = [
        old.get(kind) or {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": text}
        for kind, reason, text in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    definition["status"] = {"conditions": conditions, "acceptedNames": names, "storedVersions": stored}
