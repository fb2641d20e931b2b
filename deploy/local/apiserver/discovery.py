"""Discovery of versions, groups and resources, in the format that kubectl reads."""

from collections.abc import Iterable, Sequence

from deploy.local.apiserver.kinds import REVIEWS, ApiKind
from deploy.local.apiserver.objects import JsonObject

KUBERNETES_MINOR = "36"
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
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


def found(path: Sequence[str], kinds: Iterable[ApiKind]) -> JsonObject | None:
    """The document at /api, /apis or below; None if there is none."""
    match path:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in _group_versions(kinds).items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group] if versions := _group_versions(kinds).get(group):
            return _group(group, versions)
        case ["api", version_]:
            return _resource_list("", version_, kinds)
        case ["apis", group, version_]:
            return _resource_list(group, version_, kinds)
    return None


def _group_versions(kinds: Iterable[ApiKind]) -> dict[str, list[str]]:
    """Versions by group, without the core group."""
    found: dict[str, list[str]] = {}
    for kind in (*kinds, *REVIEWS):
        if kind.group and kind.version not in found.setdefault(kind.group, []):
            found[kind.group].append(kind.version)
    return found


def _group(name: str, versions: list[str]) -> JsonObject:
    listed = [{"groupVersion": f"{name}/{version_}", "version": version_} for version_ in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(group: str, version_: str, kinds: Iterable[ApiKind]) -> JsonObject | None:
    chosen = [kind for kind in (*kinds, *REVIEWS) if (kind.group, kind.version) == (group, version_)]
    if not chosen:
        return None
    resources = [entry for kind in chosen for entry in (_resource(kind), *_subresources(kind))]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": chosen[0].api_version,
        "resources": resources,
    }


def _resource(kind: ApiKind) -> JsonObject:
    return {
        "name": kind.plural, "singularName": kind.singular_name, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": ["create"] if kind in REVIEWS else _VERBS, "shortNames": kind.short_names,
        "categories": kind.categories,
    }  # fmt: skip


def _subresources(kind: ApiKind) -> Iterable[JsonObject]:
    for name in (("status",) if kind.status else ()) + kind.subresources:
        entry: JsonObject = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        group, version_, kind_name = _SUBRESOURCE_KINDS.get(name, (kind.group, kind.version, kind.kind))
        entry |= {"group": group, "version": version_, "kind": kind_name}
        yield entry | {"verbs": _SUBRESOURCE_VERBS.get(name, ["create"])}
