"""A small synthetic run that uses every part of the format, for tests that need no real experiment."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from audit.study import Derived
from tests.audit.reseal import Evidence

TEXT = 'a, "b"'


def array(dtype: str, *shape: Any, **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "axes": [f"axis{place}" for place in range(len(shape))], "unit": "1", **more}


def protocol() -> dict[str, Any]:
    return {
        "schema": "1",
        "experiment": "99_tiny",
        "question": "Is é doubled?",
        "seeds": [3, 5],
        "tolerance": 1e-12,
        "rederive": "all",
        "settings": {"factor": 2.0},
        "factors": {"kind": ["plain", TEXT, "other"], "flag": [True, False], "scale": [0.5, 1e-300], "size": [1, 20]},
        "blocks": {
            "main": {
                "factors": ["seed", "kind", "flag"],
                "arrays": {
                    "x": array("<f8", "case", 5),
                    "y": array("<f8", "case", 5),
                    "half": array("<u2", "case", 3, bits="float16", nan=True),
                    "ragged": array("<i4", "case", "length"),
                    "mask": array("|u1", "case", 2, bits="bool"),
                },
                "metrics": {
                    "gap": {"op": "max_abs_error", "of": ["y", "x"]},
                    "nans": {"op": "count_nan", "of": ["half"]},
                    "third": {"op": "own", "of": ["x"], "bound": 1e-9},
                },
                "decisions": ["large"],
                "counts": ["bits_set"],
            },
            "scaled": {
                "factors": ["scale", "size"],
                "arrays": {"z": array("<f4", "case")},
                "metrics": {"peak": {"op": "max", "of": ["z"]}},
            },
            "weights": {
                "factors": ["seed"],
                "rows": "none",
                "arrays": {"w": array("<f8", "case", 2, 2), "table": array("<i8", 4), "one": array("<f8")},
            },
            "clock": {
                "factors": ["seed"],
                "rows": "timing",
                "arrays": {"seconds": {**array("<f8", "case", 3), "unit": "s"}},
                "metrics": {"fastest": {"op": "min", "of": ["seconds"]}},
            },
        },
        "controls": {"gap_is_seen": {"measure": "SELECT min(gap) AS least FROM main", "holds": "least > 0", "note": "never zero"}},
        "claims": {
            "X01": {
                "measure": "SELECT count(*) AS n, max(gap) AS worst FROM main WHERE flag = 1",
                "reproduced": "n = 6 AND worst < 10",
                "contradicted": "n <> 6 OR worst >= 10",
                "note": "",
            },
            "X02": {"open": "nobody asked", "note": ""},
            "X03": {"out_of_reach": "needs a GPU", "note": ""},
            "X04": {"measure": "SELECT min(fastest) AS t FROM clock", "qualified": "t > 0", "note": "time"},
        },
    }


def evidence() -> Evidence:
    plan = protocol()
    rng = np.random.default_rng(11)
    x = rng.normal(size=(12, 5))
    half = rng.integers(0, 0x7C00, (12, 3)).astype("<u2")
    half[4, 1] = 0x7E00
    arrays = {
        "main/x": x,
        "main/y": 2 * x,
        "main/half": half,
        "main/ragged": np.arange(84, dtype="<i4").reshape(12, 7),
        "main/mask": (x[:, :2] > 0).astype("|u1"),
        "scaled/z": np.array([0.5, 1.5, 2.5, 3.5], "<f4"),
        "weights/w": rng.normal(size=(2, 2, 2)),
        "weights/table": np.arange(4, dtype="<i8"),
        "weights/one": np.array(1.25),
    }
    header = ["case", "block", "row", "seed", "flag", "kind", "scale", "size", "large", "bits_set", "gap", "nans", "peak", "third"]
    lines, case = [header], 0
    for seed in (3, 5):
        for kind in ("plain", '"a, ""b"""', "other"):
            for flag in ("true", "false"):
                row = case
                gap, nans = float(np.abs(x[row]).max()), str(int((half[row] > 0x7C00).sum()))
                large = "true" if x[row, 0] > 0 else "false"
                bits = str(int((x[row, :2] > 0).sum()))
                cells = [str(case), "main", str(row), str(seed), flag, kind, "", "", large, bits, repr(gap), nans, "", repr(x[row, 0] / 3)]
                lines.append([cell.replace("np.float64(", "").replace(")", "") for cell in cells])
                case += 1
    for row, (scale, size) in enumerate([("0.5", "1"), ("0.5", "20"), ("1e-300", "1"), ("1e-300", "20")]):
        lines.append([str(case), "scaled", str(row), "", "", "", scale, size, "", "", "", "", repr(row + 0.5), ""])
        case += 1
    sources = {
        "experiments/99_tiny/experiment.py": b"from labcore.batch import Batch\nimport numpy\n",
        "labcore/__init__.py": b"",
        "labcore/batch.py": b"class Batch: ...\n",
    }
    manifest = {
        "schema": "1",
        "experiment": "99_tiny",
        "kind": "confirmatory",
        "overrides": [],
        "differing": [],
        "recorded": {
            "git": {"commit": "ab" * 20},
            "environment": {"python": "3.11"},
            "start": "2030-01-01T00:00:00Z",
            "end": "2030-01-01T00:00:01Z",
        },
    }
    return Evidence(plan, arrays, {"clock/seconds": np.full((2, 3), 0.25)}, lines, sources, manifest)


def derive(study: Any) -> Any:
    x = study.read("main", "x")
    rows = study.chosen("main")
    yield Derived("weights", None, {"table": range(4), "one": 1.25})
    for row in rows:
        yield Derived(
            "main",
            [row],
            {"y": [[item + item for item in x[row].tolist()]], "ragged": [range(7 * row, 7 * row + 7)], "mask": [x[row, :2] > 0]},
            {"large": [x[row, 0].item() > 0]},
            {"bits_set": [sum(item > 0 for item in x[row, :2].tolist())]},
            {"third": [x[row, 0].item() * 0.3333333333333]},
        )
    rows = study.chosen("scaled")
    yield Derived("scaled", rows, {"z": [row + 0.5 for row in rows]})


MODULE = SimpleNamespace(
    __name__="audit.derive.e99",
    BOUNDS={"main/y": (1e-12, "one rounding")},
    GIVEN={"main/x": "input", "main/half": "input", "weights/w": "input", "clock/seconds": "time"},
    derive=derive,
)
