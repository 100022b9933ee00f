"""Import a file of an experiment: its folder's name begins with digits and so is no Python name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from labcore.errors import Refused


def load(path: Path) -> Any:
    """The module of a file such as experiments/06_stale_prefix/experiment.py, loaded anew."""
    name = f"experiments.{path.parent.name}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise Refused(f"{path}: no such file; every experiment has one")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
