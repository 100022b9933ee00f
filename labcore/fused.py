"""Decode attention in one small C loop, over contiguous rows or through a page table: the only difference is the look-up.

Compiled on first use by the machine's C compiler into a temporary folder; `kernel()` is None where there is no compiler. float32. The same
loop serves both layouts, so that a ratio of their times is the price of translation and nothing else.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SOURCE = r"""
#include <math.h>
/* out [h][d] of query [h][d] over n rows [2][g][d]; row i lies at slot table[i / s] * s + i % s, or at i where table is null. */
void decode(const float *query, const float *memory, const long *table, long n, long s, long h, long g, long d, float *scores, float *out) {
  for (long head = 0; head < h; head++) {
    const float *q = query + head * d;
    long group = head / (h / g), row = 2 * g * d;
    float top = -INFINITY, total = 0, scale = 1 / sqrtf((float)d);
    for (long page = 0; page * s < n; page++) {
      const float *start = memory + (table ? table[page] : page) * s * row + group * d;
      long stop = n - page * s < s ? n - page * s : s;
      for (long slot = 0; slot < stop; slot++) {
        float sum = 0;
        for (long k = 0; k < d; k++) sum += q[k] * start[slot * row + k];
        scores[page * s + slot] = sum *= scale;
        if (sum > top) top = sum;
      }
    }
    float *o = out + head * d;
    for (long k = 0; k < d; k++) o[k] = 0;
    for (long page = 0; page * s < n; page++) {
      const float *start = memory + (table ? table[page] : page) * s * row + g * d + group * d;
      long stop = n - page * s < s ? n - page * s : s;
      for (long slot = 0; slot < stop; slot++) {
        float w = expf(scores[page * s + slot] - top);
        total += w;
        for (long k = 0; k < d; k++) o[k] += w * start[slot * row + k];
      }
    }
    for (long k = 0; k < d; k++) o[k] /= total;
  }
}
"""
Floats = NDArray[np.float32]
Kernel = Callable[[Floats, Floats, "NDArray[np.int64] | None", int], Floats]


@functools.cache
def kernel() -> Kernel | None:
    """decode(query [h, d], memory [blocks, s, 2, g, d], table or None, n) -> [h, d]; None without a C compiler."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, part, library = (str(Path(folder) / f"decode.{kind}") for kind in ("c", "o", "so"))
        Path(source).write_text(SOURCE, encoding="ascii")
        # -ffast-math is for compiling only: at the link it would add a start-up routine that makes every thread of this process that
        # loads the library round subnormal numbers to zero, in NumPy and PyTorch too.
        for command in (
            [compiler, "-O3", "-ffast-math", "-fPIC", "-c", source, "-o", part],
            [compiler, "-shared", part, "-o", library, "-lm"],
        ):
            if subprocess.run(command, capture_output=True, check=False).returncode:
                return None
        function = ctypes.CDLL(library).decode
    function.restype = None
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 5 + [ctypes.c_void_p] * 2

    def decode(query: Floats, memory: Floats, table: NDArray[np.int64] | None, n: int) -> Floats:
        for name, array in (("query", query), ("memory", memory)):
            if array.dtype != np.float32 or not array.flags.c_contiguous:
                raise ValueError(f"{name}: got {array.dtype}, contiguous {array.flags.c_contiguous}; wanted contiguous float32")
        pages = -(-n // memory.shape[1])
        if n < 1 or (table is None and pages > len(memory)):
            raise ValueError(f"{n} rows in {len(memory)} blocks of {memory.shape[1]}")
        if table is not None and (len(table) < pages or table.min() < 0 or table.max() >= len(memory) or table.dtype != np.int64):
            raise ValueError(f"page table of {len(table)} entries for {pages} pages of {len(memory)} blocks; wanted int64 within them")
        out, scores = np.empty_like(query), np.empty(n, np.float32)
        address: Any = None if table is None else np.ascontiguousarray(table).ctypes.data
        h, d = query.shape
        sizes = (n, memory.shape[1], h, memory.shape[3], d)
        function(query.ctypes.data, memory.ctypes.data, address, *sizes, scores.ctypes.data, out.ctypes.data)
        return out

    return decode
