"""Check this archive without the suite: python3 data/verify.py  (needs NumPy and h5py).

It checks the bag and runs the auditor that lies beside it, in a process of its own with limits, and compares what that finds with the
stored audit.json. It cannot check who made the archive (the signature lies outside of it), nor whether the auditor in it, or this
file, is an honest one: read them, or use the suite's own (`make verify`), which runs nothing that lies in an archive.

Exit codes: 0 VERIFIED, 1 NOT VERIFIED, 2 refused, 3 NumPy or h5py is missing.
"""

import hashlib
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent
BAG = DATA.parent
SECONDS, MEMORY = 1800, 4 << 30
TAGS = {"bagit.txt", "bag-info.txt", "manifest-sha256.txt", "tagmanifest-sha256.txt"}
AUDIT = """
import json, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
sys.path[:0] = [{auditor!r}]
sys.dont_write_bytecode = True
from audit.run import audit
json.dump(audit(Path({run!r})).document, sys.stdout)
"""


class Refused(Exception):
    """What cannot be judged."""


def manifest(name: str) -> dict[str, str]:
    """Path -> SHA-256."""
    listed = {}
    for line in (BAG / name).read_text("utf-8").splitlines():
        match = re.fullmatch(r"([0-9a-f]{64})  ([A-Za-z0-9._/-]+)", line)
        if not match or match[2] in listed or {"", ".", ".."} & set(match[2].split("/")):
            raise Refused(f"{name}: the line {line[:80]!r}")
        listed[match[2]] = match[1]
    return listed


def present() -> set[str]:
    """All files of the bag; refuses links."""
    found = set()
    for folder, folders, names in os.walk(BAG):
        for name in [*folders, *names]:
            path = Path(folder, name)
            if path.is_symlink() or (name in names and not path.is_file()):
                raise Refused(f"{path.relative_to(BAG)}: a link or special file")
        found |= {Path(folder, name).relative_to(BAG).as_posix() for name in names}
    return found


def bag() -> list[str]:
    """What is wrong with the bag."""
    here = present()
    if not here >= TAGS:
        raise Refused(f"{', '.join(sorted(TAGS - here))}: missing; not an unpacked archive")
    if (BAG / "bagit.txt").read_bytes() != b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n":
        raise Refused("bagit.txt: not a BagIt 1.0 bag in UTF-8")
    payload, tags = manifest("manifest-sha256.txt"), manifest("tagmanifest-sha256.txt")
    wrong = [f"{name}: is in no manifest" for name in sorted(here - payload.keys() - tags.keys() - {"tagmanifest-sha256.txt"})]
    wrong += [f"{name}: is not covered by tagmanifest-sha256.txt" for name in sorted(TAGS - {"tagmanifest-sha256.txt"} - tags.keys())]
    for name, digest in sorted({**payload, **tags}.items()):
        if name not in here:
            wrong.append(f"{name}: is missing")
            continue
        with (BAG / name).open("rb") as handle:
            if hashlib.file_digest(handle, "sha256").hexdigest() != digest:
                wrong.append(f"{name}: does not have its SHA-256")
    return wrong


def judge(run: Path) -> dict[str, Any]:
    """The audit of the run by the auditor in the archive."""
    program = AUDIT.format(memory=MEMORY, seconds=SECONDS, auditor=str(DATA / "auditor"), run=str(run))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, timeout=2 * SECONDS, check=False)
    if done.returncode:
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Refused(f"the auditor ended without an answer: {last[:200]}")
    return dict(json.loads(done.stdout))


def main() -> int:
    """One line a step; the exit code says the verdict."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for name in ("numpy", "h5py"):
        try:
            __import__(name)
        except ImportError:
            print(f"verify: the Python package {name} is not installed", file=sys.stderr)
            return 3
    try:
        wrong = bag()
        for line in wrong:
            print(f"bag        {line}")
        if wrong:
            print("audit      not checked: the bytes are not those that were frozen\nNOT VERIFIED")
            return 1
        print("bag        BagIt 1.0, every file and SHA-256")
        about = json.loads((DATA / "archive.json").read_bytes())
        experiment, run = str(about["experiment"]), str(about["run"])
        if not re.fullmatch(r"[0-9]{2}_[a-z0-9_]+", experiment) or not re.fullmatch(r"[0-9a-f]{12}", run):
            raise Refused("data/archive.json: experiment or run")
        folder = DATA / experiment / run
        found, stored = judge(folder), json.loads((folder / "audit.json").read_bytes())
        same = found == stored
        print(f"audit      {found['verdict']} by auditor {found['auditor']['version']}, which lies in this archive")
        print(f"audit.json {'equal to what the auditor finds' if same else 'NOT what the auditor finds'}")
        for name, claim in sorted(found["claims"].items()):
            print(f"claim      {name} {claim['verdict']}")
    except (Refused, OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        print(f"verify: REFUSED: {error}", file=sys.stderr)
        return 2
    for reason in about.get("draft", []):
        print(f"draft      {reason}")
    print("signature  not checked: it lies beside the archive; `make verify` of the suite checks it")
    print("auditor    not checked: whether data/auditor is the published one; nor the canonical bytes of the HDF5 files, nor the figures")
    good = same and found["verdict"] == "VERIFIED"
    print("VERIFIED" if good else "NOT VERIFIED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
