"""Raises the decided targets, one after another or all at once."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.scale_up.decisions import Increase

MOST_AT_ONCE = 16


@dataclass(frozen=True)
class IncreaseResult:
    """One increase and its error; after an error the target may or may not have been raised."""

    increase: Increase
    error: ProviderError | None = None


def carry_out(
    increases: Sequence[Increase], increase: Callable[[str, int], None], *, parallel: bool = False
) -> list[IncreaseResult]:
    """The attempts, in the given order. One after another, the first error stops; in parallel, all are attempted."""

    def attempt(each: Increase) -> IncreaseResult:
        try:
            increase(each.group, each.nodes)
        except ProviderError as error:
            return IncreaseResult(each, error)
        return IncreaseResult(each)

    if parallel and increases:
        with ThreadPoolExecutor(min(MOST_AT_ONCE, len(increases)), "increase") as pool:
            return list(pool.map(attempt, increases))
    results: list[IncreaseResult] = []
    for each in increases:
        results.append(attempt(each))
        if results[-1].error is not None:
            break
    return results


def combined_errors(results: Sequence[IncreaseResult]) -> str:
    """All errors as one text, each once, by kind and then text; empty without errors."""
    errors = sorted({(type(each.error).__name__, str(each.error)) for each in results if each.error is not None})
    texts = list(dict.fromkeys(text for _, text in errors))
    if len(texts) < 2:
        return "".join(texts)
    return f"{texts[0]} ...and other errors: [{', '.join(json.dumps(text) for text in texts[1:])}]"
