"""ClusterColocationProfile: changes to the pods it selects, applied when they are created."""

import msgspec

from shared.api.meta import ObjectMeta, Wire, prepared
from shared.api.selectors import LabelSelector


class ProfileSpec(Wire, frozen=True):
    """A selector that is missing or empty selects everything. `patch` is a strategic merge patch of the pod."""

    namespace_selector: LabelSelector | None = None
    selector: LabelSelector | None = None
    probability: int | str | None = None
    qos_class: str = ""
    priority_class_name: str = ""
    koordinator_priority: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    label_keys_mapping: dict[str, str] | None = None
    annotation_keys_mapping: dict[str, str] | None = None
    label_suffixes: dict[str, str] | None = None
    scheduler_name: str = ""
    patch: dict[str, object] | None = None


@prepared
class ClusterColocationProfile(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ProfileSpec = msgspec.field(default_factory=ProfileSpec)
