"""Discovery of versions, groups and resources, in the format that kubectl reads."""

from collections.abc import Iterable

from deploy.local.apiserver.kinds import REVIEWS, ApiKind
from deploy.local.apiserver.objects import JsonObject

KUBERNETES_MINOR = "36"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCE_VERBS = {
    "status": ["get", "patch", "update"], "scale": ["get", "patch", "update"], "log": ["get"], "finalize": ["update"],
}  # fmt: skip
_SUBRESOURCE_KINDS = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
}


def version() -> JsonObject:
    """/version: the Kubernetes minor release that this server follows."""
    return {
        "major": "1", "minor": KUBERNETES_MINOR, "gitVersion": f"v1.{KUBERNETES_MINOR}.0+headroom",
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none",
        "compiler": "none", "platform": "linux/amd64",
    }  # fmt: skip


def api_versions(address: str) -> JsonObject:
    return {
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }  # fmt: skip


def group_versions(kinds: Iterable[ApiKind]) -> dict[str, list[str]]:
    """Versions by group, without the core group."""
    found: dict[str, list[str]] = {}
    for kind in (*kinds, *REVIEWS):
        if kind.group and kind.version not in found.setdefault(kind.group, []):
            found[kind.group].append(kind.version)
    return found


def api_group(name: str, versions: list[str]) -> JsonObject:
    listed = [{"groupVersion": f"{name}/{version_}", "version": version_} for version_ in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": listed, "preferredVersion": listed[0]}


def group_list(kinds: Iterable[ApiKind]) -> JsonObject:
    groups = [api_group(name, versions) for name, versions in group_versions(kinds).items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def resource_list(group_name: str, version_: str, kinds: Iterable[ApiKind]) -> JsonObject | None:
    """The resources of a group version; None if it does not exist."""
    resources: list[JsonObject] = []
    for kind in kinds:
        if (kind.group, kind.version) == (group_name, version_):
            resources.append(_resource(kind))
            resources.extend(_subresources(kind))
    reviews = [kind for kind in REVIEWS if (kind.group, kind.version) == (group_name, version_)]
    resources += [_resource(kind) | {"verbs": ["create"]} for kind in reviews]
    if not resources:
        return None
    name = f"{group_name}/{version_}" if group_name else version_
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}


def _resource(kind: ApiKind) -> JsonObject:
    entry: JsonObject = {
        "name": kind.plural, "singularName": kind.singular_name, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": _VERBS,
    }  # fmt: skip
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    return entry


def _subresources(kind: ApiKind) -> Iterable[JsonObject]:
    for name in (("status",) if kind.status else ()) + kind.subresources:
        entry: JsonObject = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        if name in _SUBRESOURCE_KINDS:
            group_name, version_, kind_name = _SUBRESOURCE_KINDS[name]
            entry |= {"group": group_name} if group_name else {}
            entry |= {"version": version_, "kind": kind_name}
        else:
            entry["kind"] = kind.kind
        yield entry | {"verbs": _SUBRESOURCE_VERBS.get(name, ["create"])}
