"""How many examples a property is tried with."""

from hypothesis import settings


def examples(count: int) -> settings:
    """`count` where the profile draws the 100 that Hypothesis draws by itself, and fewer where that draws fewer."""
    return settings(max_examples=max(1, count * settings().max_examples // 100))


def stride() -> int:
    """Every which of many alike cases is tried: each of them where the profile draws 100 examples."""
    return max(1, 100 // settings().max_examples)
