"""Hydra's part: conf/experiment/NN_name.yaml and overrides, composed and resolved into a protocol. Imported only where needed."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from labcore.errors import Refused
from labcore.protocol import Protocol, parse

FIXED = ("hydra", "experiment", "schema")  # not the protocol's to change


def resolve(root: Path, experiment: str, overrides: list[str]) -> Protocol:
    """The protocol of conf/experiment/<experiment>.yaml with overrides such as `seeds=[1,2,3]` or `seeds=range(0,10000)`.

    Raises Refused: an override that adds, removes or configures Hydra; an unknown key (with the nearest right one); a wrong type.
    """
    parsed = [_parse(text) for text in overrides]
    try:
        with _conf(root):
            base = compose("config", [f"experiment={experiment}"])
            for override in parsed:
                _known(OmegaConf.to_container(base, resolve=False), override)
            # A range is data to us, a sweep of jobs to Hydra; and ten thousand literals take its grammar half a minute.
            ranges = {o.key_or_group: list(_numbers(o)) for o in parsed if o.is_range_sweep()}
            plain = [o.input_line for o in parsed if not o.is_range_sweep() and o.input_line is not None]
            config = compose("config", [f"experiment={experiment}", *plain]) if plain else base
        data: Any = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise Refused(f"conf/experiment/{experiment}.yaml: {str(error).splitlines()[0]}") from None
    for key, values in ranges.items():
        _put(data, key.split("."), values)
    return parse(data, f"conf/experiment/{experiment}.yaml" + (f" with {' '.join(overrides)}" if overrides else ""))


def completions(root: Path, experiment: str, word: str) -> list[str]:
    """What the beginning of an override may become, as Hydra's own completion has it: keys, followed by a dot or an equals sign, and behind
    the sign the present value, where it can stand on a command line as it is.
    """
    with _conf(root):
        data: Any = OmegaConf.to_container(compose("config", [f"experiment={experiment}"]), resolve=True)
    data = {key: value for key, value in data.items() if key not in FIXED}
    key, given, typed = word.partition("=")
    *parents, last = key.split(".")
    for part in parents:
        data = data.get(part) if isinstance(data, dict) else None
    if not isinstance(data, dict):
        return []
    if not given:
        before = "".join(f"{part}." for part in parents)
        names = [str(name) for name in data if str(name).startswith(last)]
        return [f"{before}{name}{'.' if isinstance(data[name], dict) and data[name] else '='}" for name in names]
    value = json.dumps(data.get(last), separators=(",", ":")).strip('"')
    plain = last in data and not isinstance(data[last], dict) and re.fullmatch(r"[\w.,+\[\]-]+", value)
    return [f"{key}={value} "] if plain and value.startswith(typed) else []


def _conf(root: Path) -> Any:
    return initialize_config_dir(config_dir=str(root / "conf"), version_base="1.3", job_name="labcore")


def _parse(text: str) -> Override:
    if text.startswith(("+", "~")):
        raise Refused(f"override {text!r}: got one that adds or removes a key; wanted key=value for a key of the protocol")
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise Refused(f"override {text!r}: {str(error).splitlines()[0]}; wanted key=value") from None
    key = override.key_or_group
    if key.split(".")[0] in FIXED or override.package:
        raise Refused(f"override {text!r}: {key} is not the protocol's to change")
    if override.is_sweep_override() and not override.is_range_sweep():
        raise Refused(f"override {text!r}: got a sweep; wanted one value, a list [a,b] or range(start,stop)")
    return override


def _known(data: Any, override: Override) -> None:
    at = data
    parts = override.key_or_group.split(".")
    for depth, part in enumerate(parts):
        if not isinstance(at, dict) or part not in at:
            known = [str(key) for key in at] if isinstance(at, dict) else []
            near = difflib.get_close_matches(part, known, 1, 0.5)
            hint = f"did you mean {'.'.join([*parts[:depth], near[0]])!r}?" if near else f"known: {', '.join(known) or 'nothing below it'}"
            raise Refused(f"override {override.input_line!r}: unknown key {'.'.join(parts[: depth + 1])!r}; {hint}")
        at = at[part]


def _numbers(override: Override) -> range:
    sweep = override.value()
    assert isinstance(sweep, RangeSweep)
    bounds = (sweep.start, sweep.stop, sweep.step)
    if not all(isinstance(b, int | float) and float(b).is_integer() for b in bounds):
        raise Refused(f"override {override.input_line!r}: wanted whole numbers in range(start,stop,step)")
    start, stop, step = (int(b) for b in bounds if b is not None)
    if step <= 0 or not 0 < (stop - start + step - 1) // step <= 10_000_000:
        raise Refused(f"override {override.input_line!r}: wanted a range of 1 to 10000000 numbers")
    return range(start, stop, step)


def _put(data: Any, parts: list[str], value: Any) -> None:
    for part in parts[:-1]:
        data = data[part]
    data[parts[-1]] = value
