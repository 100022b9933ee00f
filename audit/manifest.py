"""manifest.json (FORMAT 7): its keys, types and canonical bytes, and the name that follows from its digests."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from audit.findings import Damaged, Findings
from audit.ledger import DIGEST, RUN, TIME
from audit.strictjson import NotJson, parse, write

FILE = "manifest.json"
KEYS = {
    "schema", "experiment", "run", "kind", "overrides", "differing", "protocol", "data", "timings", "files", "sources", "recorded",
}  # fmt: skip
COMMIT = re.compile(r"([0-9a-f]{40})?")


def read(data: bytes, findings: Findings) -> dict[str, Any]:
    """The manifest; Damaged (S103) where the parts that all else rests on are not there."""
    try:
        value = parse(data)
    except NotJson as error:
        raise Damaged("S103", FILE, str(error)) from None
    if not isinstance(value, dict):
        raise Damaged("S103", FILE, "wanted an object")
    for why in _wrong(value):
        raise Damaged("S103", FILE, why)
    if write(value) != data:
        findings.add("S103", FILE, "the bytes are not the canonical ones of this value")
    return value


def _wrong(value: dict[str, Any]) -> Any:
    """Yields what is wrong; each check may rest on those before it."""
    if value.keys() != KEYS:
        yield f"the keys {', '.join(sorted(value.keys() ^ KEYS)[:5])} are missing or not allowed"
    if value["schema"] != "1":
        yield f"the schema is {value['schema']!r}"
    if not isinstance(value["experiment"], str) or not isinstance(value["run"], str) or not RUN.fullmatch(value["run"]):
        yield "experiment or run is not a name"
    if value["kind"] not in ("confirmatory", "exploratory"):
        yield f"the kind is {value['kind']!r}"
    for key in ("overrides", "differing"):
        if not isinstance(value[key], list) or not all(isinstance(item, str) for item in value[key]):
            yield f"{key} is not a list of texts"
    if value["differing"] != sorted(set(value["differing"])):
        yield "differing is not sorted"
    if not _shape(value["protocol"], {"sha256", "resolved"}) or not digest(value["protocol"]["sha256"]):
        yield "protocol is not {sha256, resolved}"
    if not _shape(value["data"], {"arrays", "results_sha256"}) or not digest(value["data"]["results_sha256"]):
        yield "data is not {arrays, results_sha256}"
    for key, part in (("data.arrays", value["data"]["arrays"]), ("timings", value["timings"])):
        if not isinstance(part, dict) or not all(_array(item) for item in part.values()):
            yield f"{key} does not give a dtype, shape and sha256 per array"
    for key in ("files", "sources"):
        if not isinstance(value[key], dict) or not all(digest(item) for item in value[key].values()):
            yield f"{key} is not a digest per path"
    if not set(value["differing"]) <= value["sources"].keys():
        yield "differing names a file that is not among the sources"
    recorded = value["recorded"]
    if not _shape(recorded, {"git", "environment", "start", "end"}) or not isinstance(recorded["environment"], dict):
        yield "recorded is not {git, environment, start, end}"
    git = recorded["git"]
    if not _shape(git, {"commit"}) or not isinstance(git["commit"], str) or not COMMIT.fullmatch(git["commit"]):
        yield "recorded.git is not {commit} with 40 hex digits or none"
    if not all(isinstance(recorded[key], str) and TIME.fullmatch(recorded[key]) for key in ("start", "end")):
        yield "start or end is not a time in UTC"
    if recorded["start"] > recorded["end"]:
        yield "the run ends before it starts"


def digest(value: Any) -> bool:
    """Whether a value is a SHA-256 in hex."""
    return isinstance(value, str) and DIGEST.fullmatch(value) is not None


def _shape(value: Any, keys: set[str]) -> bool:
    return isinstance(value, dict) and value.keys() == keys


def _array(value: Any) -> bool:
    if not _shape(value, {"dtype", "shape", "sha256"}) or not digest(value["sha256"]) or not isinstance(value["dtype"], str):
        return False
    return isinstance(value["shape"], list) and all(type(size) is int and size >= 0 for size in value["shape"])


def name(value: dict[str, Any]) -> str:
    """The run's name (section 6) as the manifest's own digests give it."""
    lines = ["protocol " + hashlib.sha256(write(value["protocol"]["resolved"])).hexdigest()]
    for path, item in sorted(value["data"]["arrays"].items()):
        shape = "x".join(map(str, item["shape"])) or "scalar"
        lines.append(f"array {path} {item['dtype']} {shape} {item['sha256']}")
    lines.append("results " + value["data"]["results_sha256"])
    return hashlib.sha256("".join(line + "\n" for line in lines).encode("utf-8")).hexdigest()[:12]
