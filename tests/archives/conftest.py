"""A toy run, frozen and signed once for all tests of a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labcore import archive, attest, confined
from labcore.workspace import Workspace
from tests.conftest import project_at


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: Any) -> Iterator[Any]:
    """root, workspace, run (its folder), path (the archive, signed), done (what freezing gave), key (the private one)."""
    with frozen_at(tmp_path_factory.mktemp("frozen")) as made:
        yield made


@contextmanager
def frozen_at(place: Path) -> Iterator[Any]:
    """The toy project, its run frozen and signed."""
    made = project_at(place)
    run = made.make()
    workspace = Workspace(made.root)
    key = place / "keys" / "tester.pem"
    attest.make_key(key, workspace.evidence / "keys" / "tester.pub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confined, "ROOT", made.root)
        patch.chdir(made.root)
        done = archive.freeze(workspace, run, draft=False, key=key)
        yield SimpleNamespace(project=made, root=made.root, workspace=workspace, run=run, path=done.path, done=done, key=key)


def place(frozen: Any, folder: Path, data: bytes, name: str = "") -> Path:
    """Write archive bytes somewhere else; no signature lies beside them."""
    path = folder / (name or frozen.path.name)
    path.write_bytes(data)
    return path
