"""Named arrays as bytes, for checkpoints, and back."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent.predict_server.daily import Arrays

Parts: TypeAlias = Mapping[str, Arrays]


class _Array(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    content: bytes


_DECODER = msgspec.msgpack.Decoder(dict[str, dict[str, _Array]])
_DTYPES = {np.dtype(name).str: np.dtype(name) for name in ("<f4", "<f8", "<i8", "?")}


def encode(parts: Parts) -> bytes:
    """Arrays of floats, integers and booleans by part and name."""

    def encoded(array: NDArray[np.generic]) -> _Array:
        return _Array(array.dtype.str, list(array.shape), array.tobytes())

    return msgspec.msgpack.encode(
        {part: {name: encoded(array) for name, array in arrays.items()} for part, arrays in parts.items()}
    )


def decode(state: bytes) -> dict[str, dict[str, NDArray[np.generic]]]:
    """The input of `encode`. Raises ValueError."""

    def decoded(array: _Array) -> NDArray[np.generic]:
        if array.dtype not in _DTYPES or min(array.shape, default=0) < 0:
            raise ValueError(f"an array of {array.dtype!r} of shape {array.shape}")
        return np.frombuffer(array.content, _DTYPES[array.dtype]).reshape(array.shape).copy()

    try:
        found = _DECODER.decode(state)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    return {part: {name: decoded(array) for name, array in arrays.items()} for part, arrays in found.items()}
