"""Named damages to evidence, each with the rules that must find it.

RAW damages are done to the files of a sealed run. SEALED ones are done to what the files hold, and everything is sealed again with fresh
digests and a fresh name, as someone would who wants to deceive. `Target` says where in a base to aim.
"""

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from tests.audit.reseal import Evidence, canonical, reseal_files, sha


@dataclass(frozen=True)
class Target:
    """A csv block and names in it: `exact` and `bounded` arrays, a metric over `bounded`, a decision ("": none), a count, a claim."""

    block: str
    exact: str
    bounded: str
    metric: str
    decision: str
    count: str
    claim: str

    def suits(self, damage: str) -> bool:
        """Whether the damage can be done here: a block without decisions has none to flip."""
        return bool(self.decision) or not damage.startswith("decision")


RAW: dict[str, tuple[set[str], Callable[[Path, Target], Path | None]]] = {}
SEALED: dict[str, tuple[set[str], Callable[[Evidence, Target], None]]] = {}
HDF5: dict[str, tuple[set[str], Callable[[Path, Target], None]]] = {}


def raw(*rules: str):
    return lambda function: RAW.setdefault(function.__name__, (set(rules), function)) and function


def sealed(*rules: str):
    return lambda function: SEALED.setdefault(function.__name__, (set(rules), function)) and function


def hdf5(*rules: str):
    return lambda function: HDF5.setdefault(function.__name__, (set(rules), function)) and function


def lines_of(evidence: Evidence, target: Target) -> list[list[str]]:
    return [line for line in evidence.lines if line[1] == target.block]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def rewrite(run: Path, change: Callable[[dict], None]) -> None:
    path = run / "sealed" / "manifest.json"
    value = json.loads(path.read_bytes())
    change(value)
    path.write_bytes(canonical(value))


# --- files as they lie


@raw("S105", "S111")
def byte_of_an_array_flipped(run, target):
    path = run / "sealed" / "arrays.h5"
    with h5py.File(path) as file:
        at = file[f"{target.block}/{target.bounded}"].id.get_offset()
    flip(path, at)


@raw("M201", "S105", "S116")
def results_cell_changed(run, target):
    path = run / "sealed" / "results.csv"
    lines = path.read_bytes().split(b"\n")
    place = lines[0].split(b",").index(target.metric.encode())
    row = next(number for number, line in enumerate(lines) if f",{target.block},".encode() in line)
    cells = lines[row].split(b",")
    lines[row] = b",".join([*cells[:place], b"77.5", *cells[place + 1 :]])
    path.write_bytes(b"\n".join(lines))


@raw("S105", "S113")
def arrays_padded(run, target):
    with (run / "sealed" / "arrays.h5").open("ab") as file:
        file.write(b"\0" * 8)


@raw("S105", "S113")
def arrays_truncated(run, target):
    path = run / "sealed" / "arrays.h5"
    path.write_bytes(path.read_bytes()[:-1])


@raw("S119", "S105")
def arrays_emptied(run, target):
    (run / "sealed" / "arrays.h5").write_bytes(b"")


@raw("S119", "S105")
def arrays_overwritten_with_noise(run, target):
    (run / "sealed" / "arrays.h5").write_bytes(bytes(range(256)) * 9)


@raw("S105", "S108")
def sources_truncated(run, target):
    path = run / "sealed" / "sources.zip"
    path.write_bytes(path.read_bytes()[:-1])


@raw("S104")
def arrays_missing(run, target):
    (run / "sealed" / "arrays.h5").unlink()


@raw("S104")
def results_missing(run, target):
    (run / "sealed" / "results.csv").unlink()


@raw("S104")
def sources_missing(run, target):
    (run / "sealed" / "sources.zip").unlink()


@raw("S104")
def manifest_missing(run, target):
    (run / "sealed" / "manifest.json").unlink()


@raw("S104")
def sealed_folder_missing(run, target):
    (run / "sealed").rename(run / "unsealed")


@raw("S104")
def undeclared_file_added(run, target):
    (run / "sealed" / "notes.txt").write_text("nothing")


@raw("S104")
def undeclared_folder_added(run, target):
    (run / "sealed" / "more").mkdir()


@raw("S119")
def arrays_replaced_by_a_link(run, target):
    path = run / "sealed" / "arrays.h5"
    path.rename(run / "elsewhere.h5")
    path.symlink_to("../elsewhere.h5")


@raw("S104")
def sealed_folder_replaced_by_a_link(run, target):
    (run / "sealed").rename(run / "elsewhere")
    (run / "sealed").symlink_to("elsewhere")


@raw("S119")
def results_replaced_by_a_folder(run, target):
    (run / "sealed" / "results.csv").unlink()
    (run / "sealed" / "results.csv").mkdir()


@raw("S101")
def run_folder_renamed(run, target):
    return run.rename(run.with_name("0123456789ab"))


@raw("S101", "S102")
def run_renamed_in_the_manifest(run, target):
    rewrite(run, lambda value: value.update(run="0123456789ab"))


@raw("S102")
def run_renamed_everywhere(run, target):
    rewrite(run, lambda value: value.update(run="0123456789ab"))
    return run.rename(run.with_name("0123456789ab"))


@raw("S103")
def manifest_reindented(run, target):
    path = run / "sealed" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True, indent=2, ensure_ascii=False) + "\n")


@raw("S103")
def manifest_with_a_line_break_more(run, target):
    with (run / "sealed" / "manifest.json").open("a") as file:
        file.write("\n")


@raw("S103")
def manifest_key_removed(run, target):
    rewrite(run, lambda value: value.pop("sources"))


@raw("S103")
def manifest_key_added(run, target):
    rewrite(run, lambda value: value.update(remark="fine"))


@raw("S103")
def manifest_key_twice(run, target):
    path = run / "sealed" / "manifest.json"
    path.write_text(path.read_text().replace('{\n "data"', '{\n "kind": "exploratory",\n "data"', 1))


@raw("S103")
def manifest_is_a_list(run, target):
    (run / "sealed" / "manifest.json").write_text("[]\n")


@raw("S103")
def manifest_of_another_schema(run, target):
    rewrite(run, lambda value: value.update(schema="2"))


@raw("S103")
def times_in_another_form(run, target):
    rewrite(run, lambda value: value["recorded"].update(start="yesterday"))


@raw("S103")
def commit_is_no_digest(run, target):
    rewrite(run, lambda value: value["recorded"]["git"].update(commit="HEAD"))


@raw("S105")
def file_digest_changed(run, target):
    rewrite(run, lambda value: value["files"].update({"sources.zip": "0" * 64}))


@raw("S106")
def protocol_digest_changed(run, target):
    rewrite(run, lambda value: value["protocol"].update(sha256="0" * 64))


@raw("S102", "S106", "S107")
def protocol_copy_edited(run, target):
    rewrite(run, lambda value: value["protocol"]["resolved"].update(question="Another?"))


@raw("S102", "S111")
def array_digest_changed(run, target):
    rewrite(run, lambda value: value["data"]["arrays"][f"{target.block}/{target.exact}"].update(sha256="0" * 64))


@raw("S102", "S112")
def array_shape_changed_in_the_manifest(run, target):
    rewrite(run, lambda value: value["data"]["arrays"][f"{target.block}/{target.exact}"]["shape"].append(1))


@raw("S102", "S110")
def array_left_out_of_the_manifest(run, target):
    rewrite(run, lambda value: value["data"]["arrays"].pop(f"{target.block}/{target.exact}"))


@raw("S102", "S110")
def array_invented_in_the_manifest(run, target):
    entry = {"dtype": "<f8", "shape": [1], "sha256": "0" * 64}
    rewrite(run, lambda value: value["data"]["arrays"].update({f"{target.block}/invented": entry}))


@raw("S102", "S116")
def results_digest_changed(run, target):
    rewrite(run, lambda value: value["data"].update(results_sha256="0" * 64))


@raw("S117")
def confirmatory_with_an_override(run, target):
    rewrite(run, lambda value: value.update(overrides=["seeds=[1]"]))


@raw("S109", "S117")
def confirmatory_with_a_differing_source(run, target):
    rewrite(run, lambda value: value.update(differing=sorted(value["sources"])[:1]))


@raw("S117")
def confirmatory_outside_of_a_repository(run, target):
    rewrite(run, lambda value: value["recorded"]["git"].update(commit=""))


@raw("S117")
def exploratory_without_a_reason(run, target):
    rewrite(run, lambda value: value.update(kind="exploratory"))


@raw("S103")
def kind_of_its_own(run, target):
    rewrite(run, lambda value: value.update(kind="proven"))


@raw("S108")
def source_left_out_of_the_manifest(run, target):
    rewrite(run, lambda value: value["sources"].pop(sorted(value["sources"])[-1]))


@raw("S108", "S109")
def source_digest_changed(run, target):
    rewrite(run, lambda value: value["sources"].update({sorted(value["sources"])[0]: "0" * 64}))


@raw("S119")
def manifest_is_a_pipe(run, target):
    import os

    (run / "sealed" / "manifest.json").unlink()
    os.mkfifo(run / "sealed" / "manifest.json")


# --- results.csv, arrays and protocol, sealed again


@sealed("M201")
def metric_changed(evidence, target):
    line, at = lines_of(evidence, target)[1], evidence.column(target.metric)
    line[at] = repr(float(line[at]) + 1e-3)


@sealed("M201")
def metric_changed_by_one_bit(evidence, target):
    at = evidence.column(target.metric)
    line = max(lines_of(evidence, target), key=lambda line: float(line[at]))
    line[at] = repr(float(np.nextafter(float(line[at]), 0)))


@sealed("M201")
def metric_rounded(evidence, target):
    at = evidence.column(target.metric)
    for line in lines_of(evidence, target):
        line[at] = repr(round(float(line[at]), 6))


@sealed("M201")
def metric_of_two_cases_swapped(evidence, target):
    at = evidence.column(target.metric)
    ordered = sorted(lines_of(evidence, target), key=lambda line: float(line[at]))
    ordered[0][at], ordered[-1][at] = ordered[-1][at], ordered[0][at]


@sealed("S115")
def metric_not_in_shortest_form(evidence, target):
    at = evidence.column(target.metric)
    line = lines_of(evidence, target)[0]
    line[at] = "0" + line[at]


@sealed("M201")
def metric_of_minus_zero(evidence, target):
    metrics = evidence.protocol["blocks"][target.block]["metrics"]
    at = evidence.column(target.metric)
    one, other = (evidence.arrays[f"{target.block}/{name}"] for name in metrics[target.metric]["of"])
    row = int(np.abs(one - other).reshape(len(one), -1).max(axis=1).argmin())
    lines_of(evidence, target)[row][at] = "-" + lines_of(evidence, target)[row][at]


@sealed("S115")
def metric_cell_emptied(evidence, target):
    lines_of(evidence, target)[0][evidence.column(target.metric)] = ""


@sealed("M201")
def metric_said_to_be_nan(evidence, target):
    lines_of(evidence, target)[0][evidence.column(target.metric)] = "nan"


@sealed("R303")
def decision_flipped(evidence, target):
    line, at = lines_of(evidence, target)[0], evidence.column(target.decision)
    line[at] = "false" if line[at] == "true" else "true"


@sealed("S115")
def decision_in_capitals(evidence, target):
    line, at = lines_of(evidence, target)[0], evidence.column(target.decision)
    line[at] = line[at].capitalize()


@sealed("R304")
def count_changed(evidence, target):
    line, at = lines_of(evidence, target)[-1], evidence.column(target.count)
    line[at] = str(int(line[at]) + 1)


@sealed("S115")
def count_with_a_point(evidence, target):
    lines_of(evidence, target)[-1][evidence.column(target.count)] += ".0"


@sealed("S115")
def count_with_a_leading_zero(evidence, target):
    line, at = lines_of(evidence, target)[-1], evidence.column(target.count)
    line[at] = "0" + line[at]


@sealed("S114")
def case_removed(evidence, target):
    evidence.lines.remove(lines_of(evidence, target)[2])


@sealed("S114")
def last_case_removed(evidence, target):
    evidence.lines.pop()


@sealed("S114")
def case_repeated(evidence, target):
    evidence.lines.append(list(lines_of(evidence, target)[0]))


@sealed("S114")
def cases_moved(evidence, target):
    one, other = (evidence.lines.index(line) for line in lines_of(evidence, target)[:2])
    evidence.lines[one], evidence.lines[other] = evidence.lines[other], evidence.lines[one]


@sealed("S114")
def factor_changed(evidence, target):
    factor = evidence.protocol["blocks"][target.block]["factors"][0]
    line, at = lines_of(evidence, target)[0], evidence.column(factor)
    line[at] = str(int(line[at]) + 1)


@sealed("S114")
def block_of_a_case_changed(evidence, target):
    lines_of(evidence, target)[0][1] = "another"


@sealed("S115")
def column_renamed(evidence, target):
    evidence.lines[0][evidence.column(target.metric)] += "s"


@sealed("S115")
def column_removed(evidence, target):
    at = evidence.column(target.metric)
    for line in evidence.lines:
        del line[at]


@sealed("S115")
def column_added(evidence, target):
    for place, line in enumerate(evidence.lines):
        line.append("remark" if place == 0 else "")


@sealed("S115")
def cell_too_many(evidence, target):
    evidence.lines[1].append("")


@sealed("S115")
def lines_end_as_in_dos(evidence, target):
    for line in evidence.lines:
        line[-1] += "\r"


@sealed("R301")
def exact_array_changed(evidence, target):
    array = evidence.arrays[f"{target.block}/{target.exact}"]
    array.reshape(-1)[-1] += 1


@sealed("R301")
def exact_array_rows_swapped(evidence, target):
    array = evidence.arrays[f"{target.block}/{target.exact}"]
    other = next(row for row in range(1, len(array)) if not np.array_equal(array[0], array[row]))
    array[[0, other]] = array[[other, 0]]


@sealed("R302")
def bounded_array_changed_and_its_metric_made_to_agree(evidence, target):
    move(evidence, target, 1e-6)


@sealed("R302")
def bounded_array_changed_by_ten_bounds(evidence, target):
    move(evidence, target, 1e-11)


def move(evidence: Evidence, target: Target, by: float) -> None:
    """Move a number that decides the metric of some row, and write all metrics that follow from it."""
    metrics = evidence.protocol["blocks"][target.block]["metrics"]
    one, other = (evidence.arrays[f"{target.block}/{name}"] for name in metrics[target.metric]["of"])
    gaps = np.abs(one - other).reshape(len(one), -1)
    row = int(gaps.max(axis=1).argmax())
    at = (row, *np.unravel_index(int(gaps[row].argmax()), one.shape[1:]))
    evidence.arrays[f"{target.block}/{target.bounded}"][at] += by
    line = lines_of(evidence, target)[row]
    for name, metric in metrics.items():
        if metric["op"] == "max_abs_error":
            one, other = (evidence.arrays[f"{target.block}/{array}"] for array in metric["of"])
            line[evidence.column(name)] = repr(float(np.abs(one[row] - other[row]).max()))


@sealed("M202", "R302", "S118")
def nan_in_an_array(evidence, target):
    evidence.arrays[f"{target.block}/{target.bounded}"].reshape(-1)[0] = np.nan


@sealed("M201", "R302", "S118", "V403")
def infinity_in_an_array(evidence, target):
    evidence.arrays[f"{target.block}/{target.bounded}"].reshape(-1)[0] = np.inf


@sealed("S110")
def array_added(evidence, target):
    evidence.arrays[f"{target.block}/remark"] = np.zeros(3)


@sealed("S110", "S113")
def block_added(evidence, target):
    evidence.arrays["zzz/remark"] = np.zeros(3)


@sealed("S110")
def array_removed(evidence, target):
    del evidence.arrays[f"{target.block}/{target.exact}"]


@sealed("S112")
def array_of_another_dtype(evidence, target):
    name = f"{target.block}/{target.bounded}"
    evidence.arrays[name] = evidence.arrays[name].astype("<f4")


@sealed("S112")
def array_of_another_sign(evidence, target):
    name = f"{target.block}/{target.exact}"
    evidence.arrays[name] = evidence.arrays[name].view(evidence.arrays[name].dtype.str.replace("i", "u"))


@sealed("S112")
def array_one_row_short(evidence, target):
    name = f"{target.block}/{target.bounded}"
    evidence.arrays[name] = evidence.arrays[name][:-1]


@sealed("S112")
def array_with_an_axis_more(evidence, target):
    name = f"{target.block}/{target.bounded}"
    evidence.arrays[name] = evidence.arrays[name][..., None]


@sealed("S113")
def axis_renamed(evidence, target):
    declared = evidence.protocol["blocks"][target.block]["arrays"][target.bounded]
    evidence.attributes[f"{target.block}/{target.bounded}"] = {"axes": " ".join(["row", *declared["axes"][1:]]), "unit": declared["unit"]}


@sealed("S113")
def unit_changed(evidence, target):
    declared = evidence.protocol["blocks"][target.block]["arrays"][target.bounded]
    evidence.attributes[f"{target.block}/{target.bounded}"] = {"axes": " ".join(declared["axes"]), "unit": "percent"}


@sealed("S113")
def unit_left_out(evidence, target):
    declared = evidence.protocol["blocks"][target.block]["arrays"][target.bounded]
    evidence.attributes[f"{target.block}/{target.bounded}"] = {"axes": " ".join(declared["axes"])}


@sealed("S113")
def attribute_added(evidence, target):
    declared = evidence.protocol["blocks"][target.block]["arrays"][target.bounded]
    axes = " ".join(declared["axes"])
    evidence.attributes[f"{target.block}/{target.bounded}"] = {"axes": axes, "unit": declared["unit"], "remark": "fine"}


@sealed("S107")
def tolerance_loosened(evidence, target):
    evidence.protocol["tolerance"] *= 1e6


@sealed("S107")
def claim_loosened(evidence, target):
    evidence.protocol["claims"][target.claim]["note"] = "loosened"


@sealed("S107")
def claim_dropped(evidence, target):
    del evidence.protocol["claims"][target.claim]


@sealed("S106", "S107")
def control_dropped(evidence, target):
    evidence.protocol["controls"].clear()


@sealed("S107", "V401")
def control_that_does_not_hold(evidence, target):
    next(iter(evidence.protocol["controls"].values()))["holds"] = "1 = 2"


@sealed("S107", "V402")
def control_that_is_null(evidence, target):
    next(iter(evidence.protocol["controls"].values()))["holds"] = "NULL > 0"


@sealed("S107", "V402")
def claim_with_two_verdicts(evidence, target):
    evidence.protocol["claims"][target.claim] |= {"reproduced": "1 = 1", "qualified": "1 = 1"}


@sealed("S107", "V402")
def claim_with_no_verdict(evidence, target):
    evidence.protocol["claims"][target.claim] |= {"reproduced": "1 = 2", "contradicted": "1 = 2"}


@sealed("S107", "V403")
def claim_that_attaches_a_database(evidence, target):
    evidence.protocol["claims"][target.claim]["measure"] = "ATTACH ':memory:' AS other"


@sealed("S107", "V403")
def claim_that_never_ends(evidence, target):
    table = target.block
    evidence.protocol["claims"][target.claim]["measure"] = f"SELECT count(*) AS n FROM {', '.join(f'{table} t{i}' for i in range(20))}"


@sealed("S107", "S115")
def metric_renamed_in_the_protocol(evidence, target):
    metrics = evidence.protocol["blocks"][target.block]["metrics"]
    metrics["renamed"] = metrics.pop(target.metric)


@sealed("S106", "S107")
def protocol_with_a_key_more(evidence, target):
    evidence.protocol["remark"] = "fine"


@sealed("S106", "S107")
def protocol_with_a_default_written_out(evidence, target):
    evidence.protocol["blocks"][target.block]["rows"] = "csv"


@sealed("S106", "S107")
def protocol_with_a_seed_twice(evidence, target):
    evidence.protocol["seeds"].append(evidence.protocol["seeds"][0])


@sealed("S107", "S119")
def protocol_with_more_rows_than_anyone_can_list(evidence, target):
    evidence.protocol["factors"] |= {f"many{place}": list(range(1000)) for place in range(9)}
    evidence.protocol["blocks"][target.block]["factors"] += [f"many{place}" for place in range(9)]


@sealed("S109")
def source_changed(evidence, target):
    evidence.sources[sorted(evidence.sources)[0]] += b"# changed\n"


@sealed("S108")
def experiment_left_out_of_the_sources(evidence, target):
    for name in [name for name in evidence.sources if name.endswith("/experiment.py")]:
        del evidence.sources[name]


@sealed("S108")
def imported_module_left_out_of_the_sources(evidence, target):
    del evidence.sources["labcore/batch.py"]


@sealed("S109")
def source_added(evidence, target):
    evidence.sources["labcore/zzz.py"] = b"pass\n"


@sealed("S109", "S117")
def source_changed_and_admitted(evidence, target):
    name = sorted(evidence.sources)[0]
    evidence.manifest["differing"] = [name]


# --- the container, digests of files fresh


def edit_arrays(run: Path, change: Callable[[h5py.File], None]) -> None:
    with h5py.File(run / "sealed" / "arrays.h5", "r+", libver="earliest") as file:
        change(file)


def replace(target: Target, **options):
    """Write the bounded array again with other options of the library."""

    def change(file):
        path = f"{target.block}/{target.bounded}"
        values, attributes = file[path][()], dict(file[path].attrs)
        del file[path]
        item = file.create_dataset(path, data=values, **{"track_times": False, **options})
        for key in attributes:
            item.attrs[key] = attributes[key]

    return change


@hdf5("S113")
def dataset_compressed(run, target):
    edit_arrays(run, replace(target, compression="gzip"))


@hdf5("S113")
def dataset_chunked(run, target):
    edit_arrays(run, replace(target, chunks=True))


@hdf5("S113")
def dataset_resizable(run, target):
    with h5py.File(run / "sealed" / "arrays.h5") as file:
        rank = file[f"{target.block}/{target.bounded}"].ndim
    edit_arrays(run, replace(target, maxshape=(None,) * rank))


@hdf5("S113")
def dataset_with_a_time(run, target):
    edit_arrays(run, replace(target, track_times=True))


@hdf5("S113")
def dataset_big_endian(run, target):
    edit_arrays(run, replace(target, dtype=">f8"))


@hdf5("S113")
def dataset_in_external_storage(run, target):
    with h5py.File(run / "sealed" / "arrays.h5") as file:
        values = file[f"{target.block}/{target.bounded}"][()]
    values.tofile(run / "outside.bin")
    edit_arrays(run, replace(target, external=[(str(run / "outside.bin"), 0, values.nbytes)]))


@hdf5("S113")
def dataset_never_written(run, target):
    def change(file):
        path = f"{target.block}/{target.bounded}"
        shape = file[path].shape
        del file[path]
        file.create_dataset(path, shape=shape, dtype="<f8", track_times=False)

    edit_arrays(run, change)


@hdf5("S113")
def dataset_compact(run, target):
    def change(file):
        path = f"{target.block}/{target.bounded}"
        values = file[path][:1]
        del file[path]
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(values.shape)
        h5py.h5d.create(file.id, path.encode(), h5py.h5t.IEEE_F64LE, space, plist).write(space, space, values)

    edit_arrays(run, change)


@hdf5("S113")
def dataset_virtual(run, target):
    def change(file):
        path = f"{target.block}/{target.bounded}"
        shape = file[path].shape
        del file[path]
        layout = h5py.VirtualLayout(shape, "<f8")
        layout[:] = h5py.VirtualSource("nowhere.h5", "values", shape=shape)
        file.create_virtual_dataset(path, layout)

    edit_arrays(run, change)


@hdf5("S113")
def dataset_of_texts(run, target):
    def change(file):
        path = f"{target.block}/{target.bounded}"
        del file[path]
        file.create_dataset(path, data=["text"], track_times=False)

    edit_arrays(run, change)


@hdf5("S113")
def soft_link(run, target):
    edit_arrays(run, lambda file: file.__setitem__(f"{target.block}/zzz", h5py.SoftLink(f"/{target.block}/{target.bounded}")))


@hdf5("S113")
def external_link(run, target):
    edit_arrays(run, lambda file: file.__setitem__(f"{target.block}/zzz", h5py.ExternalLink("elsewhere.h5", "/values")))


@hdf5("S113")
def array_linked_twice(run, target):
    edit_arrays(run, lambda file: file.__setitem__(f"{target.block}/zzz", file[f"{target.block}/{target.bounded}"]))


@hdf5("S113")
def group_linked_to_itself(run, target):
    edit_arrays(run, lambda file: file.__setitem__(f"{target.block}/zzz", file[target.block]))


@hdf5("S113")
def group_in_a_group(run, target):
    edit_arrays(run, lambda file: file.create_group(f"{target.block}/zzz"))


@hdf5("S113")
def empty_group_added(run, target):
    edit_arrays(run, lambda file: file.create_group("zzz"))


@hdf5("S113")
def group_with_an_attribute(run, target):
    edit_arrays(run, lambda file: file[target.block].attrs.__setitem__("remark", 1))


@hdf5("S113")
def root_with_an_attribute(run, target):
    edit_arrays(run, lambda file: file.attrs.__setitem__("remark", 1))


@hdf5("S113")
def user_block(run, target):
    path = run / "sealed" / "arrays.h5"
    copy = run / "copy.h5"
    with h5py.File(path) as old, h5py.File(copy, "w", libver="earliest", userblock_size=512) as new:
        for name in old:
            old.copy(name, new)
    copy.replace(path)


@hdf5("S113")
def newer_superblock(run, target):
    path = run / "sealed" / "arrays.h5"
    copy = run / "copy.h5"
    with h5py.File(path) as old, h5py.File(copy, "w", libver="latest") as new:
        for name in old:
            old.copy(name, new)
    copy.replace(path)


@hdf5("S113")
def arrays_padded_and_sealed(run, target):
    with (run / "sealed" / "arrays.h5").open("ab") as file:
        file.write(b"\0")


@hdf5("S113")
def shape_said_to_be_huge(run, target):
    """The header claims more numbers than the file holds."""
    path = run / "sealed" / "arrays.h5"
    with h5py.File(path) as file:
        item = file[f"{target.block}/{target.bounded}"]
        old = struct.pack(f"<{item.ndim}Q", *item.shape)
    data = path.read_bytes()
    path.write_bytes(data.replace(old, struct.pack("<Q", 1 << 40) + old[8:]))


@hdf5("S113")
def two_arrays_share_their_bytes(run, target):
    path = run / "sealed" / "arrays.h5"
    with h5py.File(path) as file:
        names = [name for name in file[target.block] if file[target.block][name].shape == file[target.block][target.bounded].shape]
        one, other = (file[target.block][name].id.get_offset() for name in names[:2])
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<Q", other), struct.pack("<Q", one)))


@hdf5("S108")
def sources_compressed(run, target):
    import zipfile

    path = run / "sealed" / "sources.zip"
    with zipfile.ZipFile(path) as old:
        content = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in content:
            new.writestr(zipfile.ZipInfo(name), content[name], zipfile.ZIP_DEFLATED)


@hdf5("S108")
def sources_with_a_comment(run, target):
    import zipfile

    with zipfile.ZipFile(run / "sealed" / "sources.zip", "a") as file:
        file.comment = b"fine"


@hdf5("S108")
def sources_with_bytes_before(run, target):
    path = run / "sealed" / "sources.zip"
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())


@hdf5("S108")
def sources_executable(run, target):
    path = run / "sealed" / "sources.zip"
    path.write_bytes(
        path.read_bytes()
        .replace(struct.pack("<I", 0o644 << 16), struct.pack("<I", 0o755 << 16))
        .replace(struct.pack("<I", 0o100644 << 16), struct.pack("<I", 0o100755 << 16))
    )


@hdf5("S108")
def source_with_a_path_that_leaves(run, target):
    path = run / "sealed" / "sources.zip"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"labcore/batch.py", b"../../../batch.p"))


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


__all__ = ["HDF5", "RAW", "SEALED", "Target", "digest_of", "reseal_files", "sha"]
