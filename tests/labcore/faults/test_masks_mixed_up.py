"""Wrong masks beside their right twins and controls."""

import numpy as np
import pytest

from labcore import masks
from labcore.attention import attend, logits, mix, softmax
from labcore.faults import packed, summed_masks, wrong_broadcast, wrong_masks

SEEDS = range(11)


def drawn(seed, requests=2, tokens=3):
    rng = np.random.default_rng(seed)
    shape = (requests, requests, tokens, 17)
    return rng.normal(size=shape), rng.normal(size=shape), rng.normal(size=shape)


def output(name, seed, requests=2, tokens=3):
    q, k, v = drawn(seed, requests, tokens)
    owner = masks.owners([tokens] * requests)
    slots_k, slots_v = (np.concatenate(list(x), axis=1)[None] for x in (k, v))
    weights = wrong_masks.VARIANTS[name](logits(q, slots_k), owner)
    return mix(weights, slots_v, weights != 0)


@pytest.mark.parametrize("name", [n for n in wrong_masks.VARIANTS if n != "correct"])
def test_each_wrong_mask_shows_on_every_seed(name):
    for seed in SEEDS:
        assert np.abs(output(name, seed) - output("correct", seed)).max() > 1e-2


@pytest.mark.parametrize("name", ["causal_only", "padding_as_isolation", "sum_as_keep", "batch_over_heads", "boundary_off_by_one"])
def test_control_one_request_hides_the_fault(name):
    if name == "sum_as_keep":  # OR of a triangle with "own" is everything, also for one request
        assert np.array_equal(output(name, 7, 1, 5), output("no_mask", 7, 1, 5))
    else:
        assert np.array_equal(output(name, 7, 1, 5), output("correct", 7, 1, 5))


def test_sums_that_are_the_and_and_those_that_are_not():
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(6, 6))
    first = np.tri(6, dtype=bool)
    second = np.repeat(np.repeat(np.eye(2, dtype=bool), 3, 0), 3, 1)
    right = softmax(scores, first & second)
    for polarity in summed_masks.POLARITIES:
        for use in summed_masks.USES:
            got = summed_masks.effective(scores, first, second, polarity, use)
            same = np.allclose(got, right, atol=1e-15)
            assert same == ((polarity, use) in summed_masks.HARMLESS), (polarity, use)
    doubly = summed_masks.effective(scores, first, second, "block", "equals_one")[:3, 3:]
    assert (doubly > 0).any()


def test_wrong_axes_fit_only_some_batches():
    valid = np.arange(11) < np.array([[5], [7], [11]])
    own = np.repeat(masks.block_diagonal(np.arange(11) % 3, 3), 2, axis=1)
    right = wrong_broadcast.lay("right_padded", valid, own, (3, 3, 2, 11))
    assert right[1, 0, 0].sum() == 7
    assert not np.array_equal(wrong_broadcast.lay("padded_as_heads", valid, own, (3, 3, 2, 11)), right)
    with pytest.raises(ValueError):
        wrong_broadcast.lay("padded_as_heads", valid, own, (3, 5, 2, 11))
    with pytest.raises(ValueError):
        wrong_broadcast.lay("owner_swapped", valid, own, (3, 3, 2, 11))
    equal = np.tile(np.arange(11) < 7, (3, 1))
    for variant in ("padded_as_heads",):  # control: equal lengths
        assert np.array_equal(
            wrong_broadcast.lay(variant, equal, own, (3, 3, 2, 11)), wrong_broadcast.lay("right_padded", equal, own, (3, 3, 2, 11))
        )


def test_packed_documents_br06():
    owner = masks.owners([3, 4])
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        x, maps, table = rng.normal(size=(7, 8)), rng.normal(0, 8**-0.5, (3, 3, 8, 16)), rng.normal(size=(11, 8))
        single = masks.owners([4])

        def error(rotary, numbering, rule, x=x, maps=maps, table=table, single=single):
            shared = packed.run(x, maps, table, packed.numbered(owner, numbering), rotary, rule(owner))[:, 3:]
            alone = packed.run(x[3:], maps, table, packed.numbered(single, "reset"), rotary, packed.block_diagonal(single))
            return np.abs(shared - alone).max()

        assert error(True, "reset", packed.causal_only) > 1e-2
        assert error(False, "reset", packed.causal_only) > 1e-2
        assert error(True, "reset", packed.block_diagonal) == 0
        assert error(False, "reset", packed.block_diagonal) == 0
        assert error(True, "contiguous", packed.block_diagonal) < 1e-14
        assert error(False, "contiguous", packed.block_diagonal) > 1e-2
    assert (packed.causal_only(owner) & ~packed.block_diagonal(owner)).sum() == 12


def test_control_one_document():
    owner = masks.owners([5])
    assert np.array_equal(packed.causal_only(owner), packed.block_diagonal(owner))
    assert np.array_equal(packed.numbered(owner, "reset"), packed.numbered(owner, "contiguous"))


def test_no_mask_gives_up_causality_too():
    q, k, v = drawn(3, 1, 5)
    assert np.abs(output("no_mask", 3, 1, 5) - attend(q, k, v, np.tri(5, dtype=bool))[0]).max() > 1e-2
