"""Prefix indexes: bytes and lookups a second of whole structures, by length and branching, and the ratio to two peers.

Peers are measured in the same process on the same sequences: SGLang's simulated radix cache, and vLLM's block digests in a
dictionary, which is what its block pool looks up. A peer that cannot be imported is one line.
"""

from __future__ import annotations

import importlib
import time
from array import array
from collections.abc import Callable
from typing import Any

from bench.commands import ROOT
from labcore.footprint import footprint
from labcore.loading import load
from labcore.matchers import make

branching_tree = load(ROOT / "experiments" / "13_prefix_matching" / "experiment.py").branching_tree

Ids = list[int]
Lookup = Callable[[Any], int]
STRUCTURES = {"trie": ("trie", 1), "radix": ("radix", 1), "block_16": ("block_hash", 16), "block_1": ("block_hash", 1)}


def measure(quick: bool) -> list[tuple[str, str]]:
    """(what, value) lines: bytes, lookups and tokens matched a second; then linearity, then the peers."""
    lines: list[tuple[str, str]] = []
    for branching in (1, 4) if quick else (1, 4, 8):
        for length in (16, 256, 4096) if quick else (16, 64, 256, 1024, 4096, 16384):
            if branching**2 * length > 300_000:
                continue
            sequences = branching_tree(length, branching)
            found = {name: build(kind, block, sequences) for name, (kind, block) in STRUCTURES.items() if name != "block_1"}
            base = footprint(found["trie"])
            for name, index in found.items():
                rate = pace(lambda ids, index=index: index.longest("owner", ids), sequences, quick)
                size = footprint(index)
                text = f"{size:>12,} B ({size / base:6.3f} of the trie)  {rate:>10,.0f} lookups/s  {rate * length / 1e6:8.2f} M tokens/s"
                lines.append((f"{name}, {length} tokens, branching {branching}", text))
    for name, (kind, block) in STRUCTURES.items():
        took = []
        for length in (1024, 16384):
            sequences = branching_tree(length, 1)
            index = build(kind, block, sequences)
            took.append(1 / pace(lambda ids, index=index: index.longest("owner", ids), sequences, quick))
        lines.append((f"{name}: time of 16384 tokens / 16 x time of 1024", f"{took[1] / took[0] / 16:.2f}"))
    return lines + peers(quick)


def build(kind: str, block: int, sequences: list[Any]) -> Any:
    """An index that holds all sequences."""
    index = make(kind, block)
    for ids in sequences:
        index.add("owner", ids)
    return index


def pace(lookup: Lookup, sequences: list[Any], quick: bool) -> float:
    """Lookups a second: the best of some rounds over all sequences, which it must find whole up to a block."""
    for ids in sequences:
        found = lookup(ids)
        if found < len(ids) // 16 * 16:
            raise AssertionError(f"lookup: found {found} of {len(ids)} stored tokens")
    best, spent, goal, rounds = float("inf"), 0.0, 0.02 if quick else 0.3, 0
    while spent < goal or rounds < 5:
        rounds += 1
        start = time.perf_counter()
        for ids in sequences:
            lookup(ids)
        took = time.perf_counter() - start
        spent += took
        best = min(best, took / len(sequences))
    return 1 / best


def peers(quick: bool) -> list[tuple[str, str]]:
    """Tokens matched a second beside each peer, on 16 requests of 2048 tokens, each in the form that the peer takes them."""
    lines = []
    for name, ours, block, maker in (
        ("SGLang RadixCache", "radix", 1, sglang_radix),
        ("vLLM block digests", "block_hash", 16, vllm_blocks),
    ):
        sequences: list[Any] = branching_tree(2048, 4)
        if maker is sglang_radix:
            sequences = [array("q", ids) for ids in sequences]
        try:
            theirs = maker(sequences)
        except (ImportError, AttributeError, TypeError) as error:
            lines.append((f"{name}", f"skipped: not installed here ({type(error).__name__}: {str(error)[:60]})"))
            continue
        index = build(ours, block, sequences)
        mine, other = pace(lambda ids, index=index: index.longest("owner", ids), sequences, quick), pace(theirs, sequences, quick)
        text = f"{mine * 2048 / 1e6:.2f} M tokens/s, peer {other * 2048 / 1e6:.2f}; ratio {mine / other:.2f}"
        lines.append((f"{ours} against {name}", text))
    return lines


def sglang_radix(sequences: list[Any]) -> Lookup:
    """SGLang's radix cache without memory pools, and its prefix match."""
    radix = importlib.import_module("sglang.srt.mem_cache.radix_cache")
    base = importlib.import_module("sglang.srt.mem_cache.base_prefix_cache")
    keys = _module_with("RadixKey", radix, "sglang.srt.mem_cache.radix_key")
    cache = radix.RadixCache.create_simulated()

    def match(ids: Any) -> int:
        found = cache.match_prefix(base.MatchPrefixParams(key=keys.RadixKey(ids, None)))
        return found.device_prefix_len if hasattr(found, "device_prefix_len") else len(found.device_indices)

    for ids in sequences:
        cache.insert(base.InsertParams(key=keys.RadixKey(ids, None)))
    return match


def vllm_blocks(sequences: list[Ids]) -> Lookup:
    """vLLM's chained block digests of a request, each looked up until the first that is missing."""
    utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    hashing = _module_with("sha256", utils, "vllm.utils.hashing", "vllm.utils")
    utils.init_none_hash(hashing.sha256)
    stored: dict[Any, int] = {}

    def match(ids: Ids) -> int:
        parent, found = None, 0
        for at in range(0, len(ids) - 15, 16):
            parent = utils.hash_block_tokens(hashing.sha256, parent, ids[at : at + 16], None)
            if parent not in stored:
                break
            found += 16
        return found

    for ids in sequences:
        parent = None
        for at in range(0, len(ids) - 15, 16):
            parent = utils.hash_block_tokens(hashing.sha256, parent, ids[at : at + 16], None)
            stored[parent] = at
    return match


def _module_with(name: str, first: Any, *others: str) -> Any:
    """The first of some modules that has a name: it moved between releases."""
    for module in (first, *(importlib.import_module(other) for other in others if not hasattr(first, name))):
        if hasattr(module, name):
            return module
    raise AttributeError(f"no module has {name}")


if __name__ == "__main__":
    for what, value in measure(quick=False):
        print(f"{what}: {value}")
