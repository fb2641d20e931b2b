"""The errors that cross modules."""

MAX_SHOWN_VALUE = 120  # a quoted value has to be recognisable, not complete


class HeadroomError(Exception):
    """Root of the errors this product raises on purpose; its text is fit to show to a user."""


class InvalidInput(HeadroomError, ValueError):
    """Input refused where it enters.

    `source` is the user's input (a flag, a file, a ConfigMap), `field` the path inside it, `value` the value there,
    `problem` the reason.
    """

    def __init__(self, *, source: str, field: str, value: object, problem: str) -> None:
        self.source = source
        self.field = field
        self.value = value
        self.problem = problem
        super().__init__(f"{source}: {field}: {shown(value)}: {problem}")


def shown(value: object) -> str:
    """`value` as an error message quotes it: one line, of bounded length."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_VALUE else text[:MAX_SHOWN_VALUE] + "..."
