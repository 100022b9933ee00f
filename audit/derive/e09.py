"""09: the same simulator as 08's with each admission policy; times are measured and can only be given."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from audit import teaching
from audit.derive.e08 import TOKEN_BYTES, Shelf, asked, behind, every, exact, last, total
from audit.study import Derived, Study

BOUNDS = {f"{block}/{name}": teaching.BOUND for block in ("states", "loose_keys") for name in ("fresh", "reuse")}
CLOCK = "a measured time"
GIVEN = {f"times/{part}": CLOCK for part in ("lookup", "hashing", "copies", "compute", "admission", "total")} | {
    "warm_up/total": CLOCK,
    "ratios/seconds": CLOCK,
    "ratios/none_seconds": CLOCK,
}
Result = tuple[dict[str, int], list[tuple[int, int, list[int]]], tuple[int, list[int]] | None]
KINDS = {"all": every, "longest": last}
NOTHING = ("resident_bytes", "explicit_copy_bytes", "admits", "evictions", "skips")


def derive(study: Study) -> Iterator[Derived]:
    networks = {seed: teaching.Network.of_seed(seed) for seed in study.seeds}
    results = {
        (budget, trace, policy): _run(study, budget, trace, policy)
        for budget in study.protocol["factors"]["budget"]
        for trace in study.protocol["factors"]["trace"]
        for policy in study.protocol["factors"]["policy"]
    }
    yield _queries(study, results)
    yield from _states(study, networks, results)
    yield _totals(study, results)
    yield _order(study)
    yield _loose(study, networks)
    yield _ratios(study)


def _run(study: Study, budget: int, trace: str, policy: str) -> list[Result]:
    requests = [asked(study.settings, trace, index) for index in study.protocol["factors"]["index"]]
    if policy != "none":
        shelf = Shelf(budget, KINDS[policy], exact)
        return [shelf.request(scope, ids) for ids, scope in requests]
    return [
        (
            {"cut": 0, "projected_rows": 3 * teaching.LAYERS * len(ids), "score_elements": teaching.LAYERS * len(ids) ** 2}
            | dict.fromkeys(NOTHING, 0),
            [],
            None,
        )
        for ids, _ in requests
    ]


def _of(row: dict[str, Any]) -> tuple[int, str, str]:
    return row["budget"], row["trace"], row["policy"]


def _queries(study: Study, results: dict[tuple[int, str, str], list[Result]]) -> Derived:
    chosen, rows = study.chosen("queries"), study.rows("queries")
    counts = [results[_of(rows[n])][rows[n]["index"]][0] for n in chosen]
    return Derived(
        "queries", chosen, {}, {"hit": [one["cut"] > 0 for one in counts]}, {name: [one[name] for one in counts] for name in counts[0]}
    )


def _states(study: Study, networks: dict[int, teaching.Network], results: dict[tuple[int, str, str], list[Result]]) -> Iterator[Derived]:
    chosen, rows = study.chosen("states"), study.rows("states")
    arrays: dict[str, list[Any]] = {"request": [], "scope": [], "fresh": [], "reuse": []}
    for row in (rows[n] for n in chosen):
        ids, scope = asked(study.settings, row["trace"], row["index"])
        maker = results[_of(row)][row["index"]][2]
        arrays["request"].append(ids)
        arrays["scope"].append(scope)
        arrays["fresh"].append(networks[row["seed"]].run(ids).states[-1])
        arrays["reuse"].append(behind(networks[row["seed"]], maker, ids).states[-1])
    kinds: dict[str, Any] = {"request": np.int8, "scope": np.int8}
    yield Derived("states", chosen, {k: np.array(v, kinds.get(k, np.float64)) for k, v in arrays.items()})
    log = [
        [number, kind, scope, TOKEN_BYTES * len(ids), len(ids), ids + [-1] * (8 - len(ids))]
        for number, row in enumerate(rows)
        for kind, scope, ids in results[_of(row)][row["index"]][1]
    ]
    types = {"state_row": np.int32, "kind": np.int8, "scope": np.int8, "nbytes": np.int32, "length": np.int8, "prefix": np.int8}
    yield Derived("events", None, {name: np.array([line[i] for line in log], kind) for i, (name, kind) in enumerate(types.items())})


def _totals(study: Study, results: dict[tuple[int, str, str], list[Result]]) -> Derived:
    chosen, rows = study.chosen("totals"), study.rows("totals")
    names = study.protocol["blocks"]["totals"]["counts"]
    return Derived("totals", chosen, counts={name: [total(name, [r[0] for r in results[_of(rows[n])]]) for n in chosen] for name in names})


def _order(study: Study) -> Derived:
    factors = study.protocol["factors"]
    places = len(study.seeds) * math.prod(len(factors[name]) for name in ("budget", "trace", "policy"))
    orders = []
    for repeat in factors["repeat"]:
        order = list(range(places))
        random.Random(1000 * study.settings["shuffle"] + repeat).shuffle(order)
        orders.append(order)
    return Derived("order", None, {"configuration": np.array(orders, np.int16)})


def _loose(study: Study, networks: dict[int, teaching.Network]) -> Derived:
    chosen, rows = study.chosen("loose_keys"), study.rows("loose_keys")
    fresh, reuse, foreign = [], [], []
    for row in (rows[n] for n in chosen):
        shelf = Shelf(row["budget"], KINDS[row["kept"]], lambda scope, ids: (scope, len(ids)))
        network, right, got, hits = networks[row["seed"]], [], [], 0
        for index in study.protocol["factors"]["index"]:
            ids, scope = asked(study.settings, "alternating-branches", index)
            _, _, maker = shelf.request(scope, ids)
            hits += maker is not None and maker[1] != ids[: len(maker[1])]
            right.append(network.run(ids).states[-1])
            got.append(behind(network, maker, ids).states[-1])
        fresh.append(right)
        reuse.append(got)
        foreign.append(hits)
    return Derived("loose_keys", chosen, {"fresh": np.array(fresh), "reuse": np.array(reuse)}, counts={"foreign_hits": foreign})


def _ratios(study: Study) -> Derived:
    chosen = study.chosen("ratios")
    seconds, none = study.read("ratios", "seconds"), study.read("ratios", "none_seconds")

    def undisturbed(table: list[list[float]]) -> float:  # the shortest repeat of each request
        return math.fsum(min(repeats) for repeats in zip(*table, strict=True))

    ratios = [undisturbed(seconds[n].tolist()) / undisturbed(none[n].tolist()) for n in chosen]
    return Derived("ratios", chosen, own={"time_ratio": ratios})
