import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kube import watch
from shared.kube.errors import InvalidResponse

line = st.binary(min_size=1, max_size=30).filter(lambda raw: b"\n" not in raw)


@given(st.lists(line), line | st.just(b""), st.lists(st.integers(0, 400)))
def test_lines_survive_any_cut_and_a_torn_end_is_dropped(whole: list[bytes], torn: bytes, cuts: list[int]) -> None:
    sent = b"".join(one + b"\n" for one in whole) + torn
    bounds = sorted({min(cut, len(sent)) for cut in cuts} | {0, len(sent)})
    chunks = [sent[a:b] for a, b in itertools.pairwise(bounds)]
    assert list(watch.lines(chunks)) == whole


def test_empty_lines_are_no_events() -> None:
    assert list(watch.lines([b"\n\na\n\n", b"\nb\n"])) == [b"a", b"b"]


def test_a_line_without_an_end_is_given_up_before_it_fills_the_memory() -> None:
    endless = iter(lambda: b"x" * 1000, b"")
    with pytest.raises(InvalidResponse, match="longer than 5000 bytes"):
        list(watch.lines(endless, max_line_bytes=5000))
