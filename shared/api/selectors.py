"""Kubernetes' label selectors over plain labels."""

from collections.abc import Mapping

from shared.api.meta import Wire, prepared

# Whether an operator of a selector takes values.
_OPERATORS = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}


class LabelRequirement(Wire, frozen=True, forbid_unknown_fields=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None

    def matches(self, labels: Mapping[str, object]) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in (self.values or ())
            case "NotIn":
                return labels.get(self.key) not in (self.values or ())
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


@prepared
class LabelSelector(Wire, frozen=True, forbid_unknown_fields=True):
    """Kubernetes' label selector; an empty one matches everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelRequirement, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is required, so that everything matches."""
        return not self.match_labels and not self.match_expressions

    @property
    def problem(self) -> str | None:
        """Why this selector is invalid, if it is."""
        for requirement in self.match_expressions or ():
            if requirement.operator not in _OPERATORS:
                return f"operator {requirement.operator!r} is none of {', '.join(_OPERATORS)}"
            if bool(requirement.values) is not _OPERATORS[requirement.operator]:
                wanted = "needs values" if _OPERATORS[requirement.operator] else "takes no values"
                return f"operator {requirement.operator} {wanted}"
        return None

    def matches(self, labels: Mapping[str, object]) -> bool:
        """Whether these labels match a selector without a `problem`."""
        return (self.match_labels or {}).items() <= labels.items() and all(
            requirement.matches(labels) for requirement in self.match_expressions or ()
        )
