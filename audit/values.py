"""Rule S118 on the bytes of an array as they pass by: numbers must be finite where the protocol says so, booleans 0 or 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.findings import Findings
from audit.schema import ArraySpec

TOP = {"float16": 0x7C00, "bfloat16": 0x7F80, "float8_e4m3": 0x7F}
"""The bits that are all set in a pattern that is not finite."""


class Scan:
    """Looks at one array, given in pieces of bytes from its beginning on; pieces may cut a number."""

    def __init__(self, spec: ArraySpec) -> None:
        self._dtype = np.dtype(spec.dtype)
        self._bits = spec.bits
        self.idle = spec.bits != "bool" and (spec.nan or (spec.bits == "" and self._dtype.kind != "f"))
        self._rest = b""
        self._count = 0
        self.bad: list[int] = []

    def feed(self, data: memoryview) -> None:
        """The next bytes."""
        width = self._dtype.itemsize
        if self._rest:
            lacking = width - len(self._rest)
            self._rest += bytes(data[:lacking])
            data = data[lacking:]
            if len(self._rest) < width:
                return
            self._look(self._rest)
        whole = len(data) // width * width
        self._look(data[:whole])
        self._rest = bytes(data[whole:])

    def _look(self, data: memoryview | bytes) -> None:
        part = np.frombuffer(data, self._dtype)
        if self._bits == "" and part.size:
            with np.errstate(over="ignore", invalid="ignore"):
                if np.isfinite(part.sum()):  # much faster than a look at each; an overflow only means that each is looked at
                    self._count += part.size
                    return
        self.bad += (self._count + np.flatnonzero(self._wrong(part))).tolist()
        self._count += part.size

    def _wrong(self, part: NDArray[Any]) -> Any:
        if self._bits == "bool":
            return part > 1
        if self._bits:
            return (part & TOP[self._bits]) == TOP[self._bits]
        return ~np.isfinite(part)

    def report(self, where: str, shape: tuple[int, ...], findings: Findings) -> None:
        """A finding per bad number."""
        text = "neither 0 nor 1" if self._bits == "bool" else "not finite"
        for flat in self.bad:
            index = ",".join(str(int(axis)) for axis in np.unravel_index(flat, shape))
            findings.add("S118", f"{where}[{index}]", text)
