"""Loading the compiled walk must change nothing else in the process."""

import numpy as np

from labcore.fused import kernel


def test_subnormal_numbers_survive_the_loading_of_the_kernel():
    kernel()
    least = np.array([5e-324, 2.2250738585072014e-308])
    assert (least * 1.0 > 0).all() and (least / 2)[1] > 0
    assert (np.array([1e-45], np.float32) * np.float32(1.0) > 0).all()
