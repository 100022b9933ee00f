"""Damaged evidence is NOT VERIFIED, by exactly the rules that its damage breaks; the undamaged base is VERIFIED."""

import copy
import shutil
from pathlib import Path

import pytest

from audit import rederive
from audit.run import audit
from tests.audit import tiny
from tests.audit.damages import HDF5, RAW, SEALED, Target
from tests.audit.reseal import Evidence, canonical, reseal_files

ROOT = Path(__file__).parents[2]
TARGETS = {
    "99": Target("main", "ragged", "y", "gap", "large", "bits_set", "X01"),
    "05": Target("steps", "k_shape", "cached", "cache_error", "", "kv_bytes", "D01"),
    "06": Target("published", "prefix", "fresh", "unchecked_error", "reused", "projected_rows", "D06"),
}
KEPT = {number: path for number in TARGETS for path in ROOT.glob(f"evidence/{number}_*/*") if (path / "sealed").is_dir()}
BASES = ["99", *KEPT]


class Committed:
    """A repository in memory: the protocol and the sources of a run are committed as they are in it."""

    failure = ""

    def __init__(self, evidence: Evidence) -> None:
        commit = evidence.manifest["recorded"]["git"]["commit"]
        self.blobs = {f"{commit}:{name}": data for name, data in evidence.sources.items()}
        self.blobs[f"{commit}^{{commit}}"] = b"commit"
        for place in (commit, "HEAD"):
            self.blobs[f"{place}:experiments/{evidence.manifest['experiment']}/protocol.json"] = canonical(evidence.protocol)

    def has(self, commit: str) -> bool:
        return f"{commit}^{{commit}}" in self.blobs

    def blob(self, name: str) -> bytes | None:
        return self.blobs.get(name)


class Base:
    """A sealed run on disk to copy from, and the same in memory."""

    def __init__(self, number: str, folder: Path) -> None:
        self.target = TARGETS[number]
        self.run = KEPT[number] if number in KEPT else tiny.evidence().seal(folder)
        self.evidence = Evidence.load(self.run) if number in KEPT else tiny.evidence()
        self.repository = Committed(self.evidence)

    def rules(self, run: Path) -> set[str]:
        document = audit(run, self.repository).document
        assert document["verdict"] == ("NOT VERIFIED" if document["findings"] else "VERIFIED")
        assert canonical(document)
        return {item["rule"] for item in document["findings"] if item["severity"] == "error"}


def cases(catalogue):
    """Each damage on each base that it suits."""
    pairs = [(number, name) for number in BASES for name in catalogue if TARGETS[number].suits(name)]
    return pytest.mark.parametrize(("base", "name"), pairs, indirect=["base"])


@pytest.fixture(scope="module")
def base(request, tmp_path_factory):
    original = rederive.load
    rederive.load = lambda experiment: tiny.MODULE if experiment == "99_tiny" else original(experiment)
    yield Base(request.param, tmp_path_factory.mktemp("base"))
    rederive.load = original


def copied(base: Base, folder: Path) -> Path:
    run = folder / base.run.name
    shutil.copytree(base.run / "sealed", run / "sealed")
    return run


@pytest.mark.parametrize("base", BASES, indirect=True)
def test_undamaged_is_verified(base, tmp_path):
    assert base.rules(copied(base, tmp_path)) == set()
    assert base.rules(copy.deepcopy(base.evidence).seal(tmp_path)) == set()


@cases(RAW)
def test_damaged_files(base, tmp_path, name):
    wanted, damage = RAW[name]
    run = copied(base, tmp_path)
    run = damage(run, base.target) or run
    assert wanted <= base.rules(run) <= wanted | {"M201"}


@cases(SEALED)
def test_damaged_and_sealed_again(base, tmp_path, name):
    wanted, damage = SEALED[name]
    evidence = copy.deepcopy(base.evidence)
    damage(evidence, base.target)
    assert base.rules(evidence.seal(tmp_path)) == wanted


@cases(HDF5)
def test_damaged_containers(base, tmp_path, name):
    wanted, damage = HDF5[name]
    run = copied(base, tmp_path)
    damage(run, base.target)
    assert base.rules(reseal_files(run)) >= wanted
