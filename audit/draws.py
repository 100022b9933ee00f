"""Inputs drawn again from one stream of normals, and what stands for inputs that a run does not keep."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from audit.study import Study


def cut(key: Any, *shapes: tuple[int, ...]) -> list[Any]:
    """One stream of normals from a seed, cut into arrays of these shapes in order."""
    flat = np.random.default_rng(key).standard_normal(sum(math.prod(shape) for shape in shapes))
    pieces = np.split(flat, list(itertools.accumulate(math.prod(shape) for shape in shapes[:-1])))
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def digest(*pieces: bytes) -> Any:
    """SHA-256 of the pieces in order, as 32 bytes."""
    return np.array(list(hashlib.sha256(b"".join(pieces)).digest()), np.uint8)


def groups(study: Study, block: str, *names: str) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
    """The chosen rows of a block, together where neighbours agree in these factors: their numbers and their factors."""
    factors = study.rows(block)
    for _, group in itertools.groupby(study.chosen(block), lambda row: [factors[row][name] for name in names]):
        rows = list(group)
        yield rows, [factors[row] for row in rows]
