"""Usages held as an array are the mapping they stand for."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache.series import Usage
from agent.metrics_advisor.usages import Names, Usages

USAGES = st.dictionaries(st.text(), st.builds(Usage, st.floats(0, 100), st.floats(0, 1e12)))


@given(USAGES)
def test_they_are_as_they_were_given(plain: dict[str, Usage]) -> None:
    usages = Usages.of(plain)
    assert usages == plain
    assert [usages[name] for name in plain] == list(plain.values())
    assert Usages.of(usages) is usages
    with pytest.raises(KeyError):
        usages["".join([*plain, "another"])]


@given(st.lists(st.floats(0, 100) | st.just(math.nan)))
def test_those_that_are_not_known_have_no_name(cores: list[float]) -> None:
    names = [str(number) for number in range(len(cores))]
    found = Names(names).of(np.array([cores, [1.0] * len(cores)]).T.reshape(-1, 2))
    assert found == {name: Usage(one, 1.0) for name, one in zip(names, cores, strict=True) if not math.isnan(one)}


def test_names_are_made_anew_only_when_others_are_known() -> None:
    names = Names(["a", "b"])
    both, one = np.array([[0.5, 1.0], [0.5, 1.0]]), np.array([[math.nan, 1.0], [0.5, 1.0]])
    assert names.of(both).names is names.of(both * 2).names
    assert [names.of(array).names for array in (one, both)] == [("b",), ("a", "b")]
