"""Defaults and rules of the kinds that make pods from a template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from deploy.local.apiserver import podspec, selectors, status
from deploy.local.apiserver.objects import JsonObject, dig
from deploy.local.apiserver.podspec import setdefaults
from deploy.local.apiserver.status import FieldError

_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_STRATEGIES = ("Recreate", "RollingUpdate")
_NOT_NEGATIVE = "must be greater than or equal to 0"
_NOT_SELECTED = "`selector` does not match template `labels`"
_NEVER_ENDING = 'valid values: "OnFailure", "Never"'
_JOB_LABELS = "batch.kubernetes.io/"


def _default_deployment(obj: JsonObject) -> None:
    spec = obj["spec"]
    podspec.default(spec["template"]["spec"])
    setdefaults(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    setdefaults(spec["strategy"], type="RollingUpdate")
    if spec["strategy"]["type"] == "RollingUpdate":
        setdefaults(spec["strategy"], rollingUpdate={})
        setdefaults(spec["strategy"]["rollingUpdate"], maxUnavailable="25%", maxSurge="25%")


def _default_replication_controller(obj: JsonObject) -> None:
    spec = obj["spec"]
    setdefaults(spec, replicas=1)
    if not spec.get("template"):
        return
    podspec.default(spec["template"]["spec"])
    labels = dig(spec, "template", "metadata", "labels")
    for holder, field in ((spec, "selector"), (obj["metadata"], "labels")):
        if labels and not holder.get(field):
            holder[field] = dict(labels)


def _default_replica_set(obj: JsonObject) -> None:
    podspec.default(obj["spec"]["template"]["spec"])
    setdefaults(obj["spec"], replicas=1)


def _default_daemon_set(obj: JsonObject) -> None:
    spec = obj["spec"]
    podspec.default(spec["template"]["spec"])
    setdefaults(spec, revisionHistoryLimit=10)
    setdefaults(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        setdefaults(spec["updateStrategy"], rollingUpdate={})
        setdefaults(spec["updateStrategy"]["rollingUpdate"], maxUnavailable=1, maxSurge=0)
    annotations = obj["metadata"].get("annotations") or {}
    if _TEMPLATE_GENERATION not in annotations:
        obj["metadata"]["annotations"] = annotations | {_TEMPLATE_GENERATION: "1"}


def _default_stateful_set(obj: JsonObject) -> None:
    spec = obj["spec"]
    podspec.default(spec["template"]["spec"])
    setdefaults(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    setdefaults(spec, persistentVolumeClaimRetentionPolicy={})
    setdefaults(spec["persistentVolumeClaimRetentionPolicy"], whenDeleted="Retain", whenScaled="Retain")
    setdefaults(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        setdefaults(spec["updateStrategy"], rollingUpdate={})
        setdefaults(spec["updateStrategy"]["rollingUpdate"], partition=0)
    for claim in spec.get("volumeClaimTemplates") or ():
        setdefaults(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        setdefaults(claim["spec"], volumeMode="Filesystem")
        setdefaults(claim["status"], phase="Pending")


DEFAULTS: Mapping[str, Callable[[JsonObject], None]] = {
    "Deployment": _default_deployment,
    "ReplicationController": _default_replication_controller,
    "ReplicaSet": _default_replica_set,
    "DaemonSet": _default_daemon_set,
    "StatefulSet": _default_stateful_set,
}


def selector_of(workload: JsonObject) -> JsonObject | None:
    """Which pods are its own, as a metav1.LabelSelector; a ReplicationController says so by labels alone."""
    selector: JsonObject | None = workload["spec"].get("selector")
    return {"matchLabels": selector} if selector and workload["kind"] == "ReplicationController" else selector


def errors(obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    """Everything wrong with a workload that has its defaults."""
    spec = obj["spec"]
    selector = selectors.from_object(spec.get("selector"))
    labels = dig(spec, "template", "metadata", "labels") or {}
    if not selector:
        yield status.required("spec.selector")
    elif not selector.matches(labels):
        yield status.invalid_value("spec.template.metadata.labels", labels, _NOT_SELECTED)
    if old is not None and spec.get("selector") != old["spec"].get("selector"):
        yield status.immutable("spec.selector", spec.get("selector"))
    if spec.get("replicas", 0) < 0:
        yield status.invalid_value("spec.replicas", spec["replicas"], _NOT_NEGATIVE)
    if obj["kind"] == "Deployment" and spec["strategy"]["type"] not in _STRATEGIES:
        shown = {"Type": spec["strategy"]["type"], "RollingUpdate": spec["strategy"].get("rollingUpdate")}
        yield status.unsupported("spec.strategy", shown, _STRATEGIES)
    yield from podspec.errors(spec["template"]["spec"], "spec.template.spec")


def replication_controller_errors(obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    """Everything wrong with a ReplicationController that has its defaults. Its selector may change."""
    spec = obj["spec"]
    selector, template = selectors.from_object(selector_of(obj)), spec.get("template")
    if not selector:
        yield status.required("spec.selector")
    if spec["replicas"] < 0:
        yield status.invalid_value("spec.replicas", spec["replicas"], _NOT_NEGATIVE)
    if not template:
        yield status.required("spec.template")
        return
    labels = dig(template, "metadata", "labels") or {}
    if selector and not selector.matches(labels):
        yield status.invalid_value("spec.template.metadata.labels", labels, _NOT_SELECTED)
    yield from podspec.errors(template["spec"], "spec.template.spec")


def default_job(job: JsonObject) -> None:
    spec = job["spec"]
    unending = not spec["template"]["spec"].get("restartPolicy")
    podspec.default(spec["template"]["spec"])
    if unending:
        del spec["template"]["spec"]["restartPolicy"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        setdefaults(spec, completions=1)
    setdefaults(
        spec, parallelism=1, backoffLimit=6, suspend=False, completionMode="NonIndexed", manualSelector=False,
        podReplacementPolicy="TerminatingOrFailed",
    )  # fmt: skip
    if not spec["manualSelector"]:
        _select_own_pods(job)
    if not job["metadata"].get("labels") and (labels := spec["template"]["metadata"].get("labels")):
        job["metadata"]["labels"] = dict(labels)


def _select_own_pods(job: JsonObject) -> None:
    """A job's pods are those that carry its uid."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    own = {"controller-uid": uid, "job-name": name}
    template = job["spec"]["template"]["metadata"]
    prefixed = {f"{_JOB_LABELS}{key}": value for key, value in own.items()}
    template["labels"] = (template.get("labels") or {}) | own | prefixed
    setdefaults(job["spec"], selector={})
    setdefaults(job["spec"]["selector"], matchLabels={})
    job["spec"]["selector"]["matchLabels"][f"{_JOB_LABELS}controller-uid"] = uid


def job_errors(job: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    """Everything wrong with a job that has its defaults."""
    spec = job["spec"]
    template = spec["template"]["spec"]
    for name in ("parallelism", "completions", "backoffLimit"):
        if spec.get(name, 0) < 0:
            yield status.invalid_value(f"spec.{name}", spec[name], _NOT_NEGATIVE)
    policy = template.get("restartPolicy")
    if policy is None:
        yield status.required("spec.template.spec.restartPolicy", _NEVER_ENDING)
    elif policy == "Always":
        yield status.unsupported("spec.template.spec.restartPolicy", policy, ("OnFailure", "Never"))
    yield from podspec.errors(template | {"restartPolicy": policy or "Never"}, "spec.template.spec")
    if old is not None and spec["template"] != old["spec"]["template"] and not old["spec"].get("suspend"):
        yield status.immutable("spec.template", spec["template"])
