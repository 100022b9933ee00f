"""Keys of content that lose what tells contents apart (BR-21, BR-22, BR-23), as 64-bit numbers.

Faulty: `short_image`, `raw_bytes`, `untagged`. Twins: `wide_image`, `with_header`, `tagged`. Controls: few images, the same array twice,
different texts.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labcore.matchers import identity


def number(data: bytes) -> int:
    """The first eight bytes of SHA-256, big-endian."""
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


def short_image(index: int) -> int:
    """Faulty: the last 16 bits of the digest of image `index`."""
    return int.from_bytes(hashlib.sha256(f"image-{index}".encode()).digest()[-2:], "big")


def wide_image(index: int) -> int:
    """64 bits of the same digest."""
    return int.from_bytes(hashlib.sha256(f"image-{index}".encode()).digest()[-8:], "big")


def raw_bytes(values: NDArray[Any]) -> int:
    """Faulty: the buffer alone."""
    return number(values.tobytes())


def with_header(values: NDArray[Any]) -> int:
    """Shape and dtype, then the buffer."""
    return number(f"{values.dtype.str} {values.shape} ".encode() + values.tobytes())


def untagged(fields: dict[str, str]) -> int:
    """Faulty: the optional fields that are there, one after the other."""
    return number("".join(value for _, value in sorted(fields.items()) if value).encode())


def tagged(fields: dict[str, str]) -> int:
    """Every field with its name."""
    return number(identity(**fields).encode())


def array_pairs() -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Two arrays of equal bytes each: another shape, another type; and one array twice."""
    pixels = (np.arange(3000) % 251).astype(np.uint8)
    return {
        "shape": (pixels.reshape(30, 100), pixels.reshape(100, 30)),
        "dtype": (np.ones(7, "<f4"), np.ones(7, "<f4").view("<u4")),
        "same": (pixels.reshape(30, 100), pixels.reshape(30, 100).copy()),
    }
