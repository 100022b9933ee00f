"""Hostile archives, each named by its defect, made from one good archive: `python -m tests.hostile.make ARCHIVE FOLDER`.

Every case is refused (exit code 2) with the reason given beside it. Those of HDF5, JSON and zip come with all digests made anew, so that
nothing but the reader stands between them and the suite.
"""

import gzip
import io
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from labcore import canonical, tape
from tests.archives import forge


@dataclass(frozen=True)
class Case:
    """A hostile archive: its name, its bytes, and a part of the reason that it gets."""

    name: str
    data: bytes
    reason: str


class Base:
    """The good archive, taken apart."""

    def __init__(self, archive: Path) -> None:
        self.data = archive.read_bytes()
        with archive.open("rb") as handle:
            self.members, self.date = tape.read(handle.fileno(), archive.name)
        self.top = self.members[0].name.partition("/")[0]
        self.files = forge.members(archive)
        run = self.top.partition(".")[0]
        self.inner = f"data/{run[:-13]}/{run[-12:]}/"

    def entries(self) -> list[tuple[bytes, bytes]]:
        return [(forge.header(m.name.encode(), self.content(m), self.date), self.content(m)) for m in self.members]

    def content(self, member: tape.Member) -> bytes:
        return self.data[member.offset : member.offset + member.size]

    def header(self, name: str, data: bytes = b"", **fields: bytes) -> tuple[bytes, bytes]:
        return forge.header(f"{self.top}/{name}".encode(), data, self.date, **fields), data

    def with_first(self, name: bytes, **fields: bytes) -> bytes:
        """The archive with one more entry in front."""
        return forge.raw([(forge.header(name, b"", self.date, **fields), b""), *self.entries()])

    def pack(self, files: dict[str, bytes]) -> bytes:
        return forge.pack(self.top, files, self.date)

    def rebagged(self, **changed: bytes) -> bytes:
        """The archive with payload files changed or added (`__` stands for `/`), all of the bag's digests made anew."""
        return self.pack(forge.rebag(self.files | {name: data for name, data in changed.items()}))

    def resealed(self, name: str, data: bytes) -> bytes:
        """The archive with a sealed file changed, its digest in the manifest and the bag made anew."""
        manifest = canonical.loads(self.files[f"{self.inner}sealed/manifest.json"], "manifest")
        manifest["files"][name] = forge.sha(data)
        changed = {f"{self.inner}sealed/{name}": data, f"{self.inner}sealed/manifest.json": canonical.dumps(manifest)}
        return self.pack(forge.rebag(self.files | changed))


def cases(archive: Path, place: Path) -> Iterator[Case]:
    """All hostile archives; HDF5 files are made in `place`."""
    base = Base(archive)
    yield from _names(base)
    yield from _types(base)
    yield from _tar(base)
    yield from _bag(base)
    yield from _json(base)
    yield from _hdf5(base, place)
    yield from _zip(base)


def _names(b: Base) -> Iterator[Case]:
    yield Case("absolute-path", b.with_first(b"/etc/cron.d/job"), "absolute path")
    yield Case("parent-path", b.with_first(b"a/../../evil"), "parent folder")
    yield Case("dot-path", b.with_first(b"./a"), "without empty parts or '.'")
    yield Case("empty-name", b.with_first(b""), "without a name")
    yield Case("backslash-path", b.with_first(b"a\\..\\evil"), "backslash")
    yield Case("drive-letter", b.with_first(b"C:evil"), "colon")
    yield Case("control-character", b.with_first(b"a\x1b[2Jb"), "control characters")
    yield Case("not-ascii", b.with_first("aü".encode()), "is not ASCII")
    yield Case("name-that-ends-in-a-dot", b.with_first(b"0/evil."), "no '.' at its end")
    first = b.members[0]
    pair = (forge.header(first.name.encode(), b.content(first), b.date), b.content(first))
    yield Case("duplicate-name", forge.raw([pair, *b.entries()]), "stands twice")
    upper = (forge.header(first.name.replace("bag-info", "BAG-INFO").encode(), b"", b.date), b"")
    yield Case("case-colliding-name", forge.raw([upper, *b.entries()]), "upper and lower case only")
    swapped = b.entries()
    swapped[0], swapped[1] = swapped[1], swapped[0]
    yield Case("unsorted", forge.raw(swapped), "comes after")
    yield Case("file-and-folder", forge.raw(_sorted([b.header("data"), *b.entries()])), "is a file and a folder")
    yield Case("two-top-folders", forge.raw([*b.entries(), (forge.header(b"zz/a", b"", b.date), b"")]), "one folder that holds everything")
    yield Case("other-top-folder", forge.pack("evidence", b.files, b.date), "wanted <experiment>-<run>")


def _sorted(entries: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return sorted(entries, key=lambda entry: entry[0][:100].rstrip(b"\0"))


def _types(b: Base) -> Iterator[Case]:
    for name, kind, reason in (
        ("hard-link", b"1", "a hard link"),
        ("symbolic-link", b"2", "a symbolic link"),
        ("character-device", b"3", "a character device"),
        ("block-device", b"4", "a block device"),
        ("folder-entry", b"5", "a folder entry"),
        ("pipe", b"6", "a pipe"),
        ("pax-header", b"x", "a pax header"),
        ("global-pax-header", b"g", "a global pax header"),
        ("gnu-long-name", b"L", "a GNU long name"),
        ("gnu-sparse-file", b"S", "a GNU sparse file"),
        ("unknown-type", b"Q", "of type 'Q'"),
    ):
        yield Case(name, b.with_first(b"0/x", type=kind, link=b"/etc/passwd"), reason)


def _tar(b: Base) -> Iterator[Case]:
    yield Case("empty-file", b"", "an empty file")
    yield Case("gzip-bomb", gzip.compress(bytes(50_000_000), 9, mtime=0), "a gzip file")
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as out:
        out.writestr("a", b"")
    yield Case("zip-file", held.getvalue(), "a zip file")
    yield Case("xz-file", b"\xfd7zXZ\0" + bytes(100), "a xz file")
    yield Case("cut-inside-a-record", b.data[:-700], "no multiple of 10240")
    yield Case("cut-at-a-record", b.data[: tape.RECORD * 4], "are left in the archive")
    yield Case("no-end-mark", b"".join(h + d + bytes(tape.padding(len(d))) for h, d in _filled(b)), "without an end mark")
    yield Case("trailing-bytes", b.data + b"#!/bin/sh\n".ljust(tape.RECORD, b"\0"), "bytes follow")
    yield Case("trailing-zeros", b.data + bytes(tape.RECORD), "the members end the archive at")
    yield Case("bytes-behind-the-end-mark", b.data[:-1] + b"x", "behind the end mark")
    hidden = next(m for m in b.members if m.size % 512)
    at = hidden.offset + hidden.size
    yield Case("bytes-in-the-padding", b.data[:at] + b"x" + b.data[at + 1 :], "hidden in the padding")
    yield Case("wrong-checksum", b.data[:148] + b"000000" + b.data[154:], "does not have its checksum")
    yield Case("old-header", b.with_first(b"0/x", magic=bytes(8)), "no USTAR header")
    yield Case("gnu-header", b.with_first(b"0/x", magic=b"ustar  \0"), "a GNU header")
    yield Case("size-bomb", b.with_first(b"0/x", size=b"77777777777\0"), "claims 8589934591 bytes")
    yield Case("size-in-base-256", b.with_first(b"0/x", size=b"\x80" + bytes(10) + b"\1"), "eleven octal digits")
    yield Case("setuid-mode", b.with_first(b"0/x", mode=b"0004755\0"), "the header's mode")
    yield Case("owner", b.with_first(b"0/x", owner=b"0001750\0"), "the header's owner is")
    yield Case("owner-name", b.with_first(b"0/x", owner_name=b"root"), "the header's owner's name")
    yield Case("link-name-of-a-plain-file", b.with_first(b"0/x", link=b"/etc/passwd"), "the header's link")
    yield Case("another-date", b.with_first(b"0/x", date=b"00000000001\0"), "the members before have")
    many = [(forge.header(b"0/%04d" % n, b"", b.date), b"") for n in range(tape.MAX_MEMBERS + 1)]
    yield Case("too-many-members", forge.raw(many), "more than 4096 members")
    yield Case("no-members", bytes(tape.RECORD), "without members")


def _filled(b: Base) -> list[tuple[bytes, bytes]]:
    """Entries that fill a record exactly, so that only the end mark is missing."""
    size = tape.RECORD - tape.BLOCK
    return [(forge.header(b"0/x", bytes(size), b.date), bytes(size))]


def _bag(b: Base) -> Iterator[Case]:
    def without(*names: str) -> dict[str, bytes]:
        return {name: data for name, data in b.files.items() if name not in names}

    def tagged(**changed: bytes) -> bytes:
        renamed = {name.replace("__", "-").replace("_txt", ".txt"): data for name, data in changed.items()}
        return b.pack(forge.retag(b.files | renamed))

    listed = b.files["manifest-sha256.txt"]
    yield Case("removed-tag-manifest", b.pack(without("tagmanifest-sha256.txt")), "the tag files are not covered")
    md5 = without("manifest-sha256.txt", "tagmanifest-sha256.txt") | {"manifest-md5.txt": b"0" * 32 + b"  data/LICENSE\n"}
    yield Case("md5-only", b.pack(md5), "got the manifests manifest-md5.txt")
    yield Case("no-manifest", b.pack(without("manifest-sha256.txt", "tagmanifest-sha256.txt")), "got the manifests none")
    yield Case("no-declaration", b.pack(without("bagit.txt")), "no bagit.txt")
    yield Case("fetch-txt", b.pack(b.files | {"fetch.txt": b"http://example.org/x - data/x\n"}), "nothing of it lies elsewhere")
    yield Case("unlisted-tag-file", b.pack(b.files | {"notes.txt": b"x"}), "notes.txt: is no tag file")
    yield Case("unlisted-payload", b.pack(b.files | {"data/more.txt": b"x"}), "data/more.txt: is not listed")
    yield Case("missing-payload", b.pack(without("data/LICENSE")), "data/LICENSE: is listed in manifest-sha256.txt, but missing")
    yield Case("manifest-leaves-the-bag", tagged(manifest__sha256_txt=b"0" * 64 + b"  data/../../x\n" + listed), "without '.', '..'")
    yield Case("manifest-names-home", tagged(manifest__sha256_txt=b"0" * 64 + b"  ~root/x\n" + listed), "wanted one inside the bag")
    yield Case("manifest-outside-of-data", tagged(manifest__sha256_txt=b"0" * 64 + b"  bagit.txt\n" + listed), "lies outside of data/")
    yield Case("manifest-line-twice", tagged(manifest__sha256_txt=listed.splitlines(True)[0] + listed), "stands twice")
    yield Case("manifest-short-digest", tagged(manifest__sha256_txt=b"0" * 63 + b"  data/x\n" + listed), "wanted 64 hexadecimal digits")
    yield Case("manifest-with-a-mark", tagged(manifest__sha256_txt=b"\xef\xbb\xbf" + listed), "byte-order mark")
    yield Case("manifest-in-latin-1", tagged(manifest__sha256_txt=listed + b"0" * 64 + b"  data/\xfc\n"), "not UTF-8, which")
    old = b"BagIt-Version: 0.97\nTag-File-Character-Encoding: UTF-8\n"
    yield Case("older-version", tagged(bagit_txt=old), "an archive is a BagIt 1.0 bag")
    yield Case("unknown-version", tagged(bagit_txt=old.replace(b"0.97", b"7.0")), "version 7.0")
    yield Case("unknown-encoding", tagged(bagit_txt=b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-7\n"), "encoding 'UTF-7'")
    yield Case("declaration-with-more", tagged(bagit_txt=b.files["bagit.txt"] + b"x: y\n"), "got 3 lines")
    tags = b.files["tagmanifest-sha256.txt"]
    covers = b"".join(line for line in tags.splitlines(True) if b"bag-info" not in line)
    yield Case("uncovered-tag-file", b.pack(b.files | {"tagmanifest-sha256.txt": covers}), "bag-info.txt: is not covered")
    payload = forge.sha(b.files["data/LICENSE"]).encode() + b"  data/LICENSE\n"
    yield Case("tag-manifest-lists-payload", b.pack(b.files | {"tagmanifest-sha256.txt": tags + payload}), "which is payload")
    info = b.files["bag-info.txt"]
    yield Case("wrong-sum-of-sizes", tagged(bag__info_txt=info.replace(b"Payload-Oxum: ", b"Payload-Oxum: 1")), "Payload-Oxum is")
    yield Case("bag-info-without-label", tagged(bag__info_txt=b"no label\n" + info), "wanted 'Label: value'")
    yield Case("foreign-payload", b.pack(forge.rebag(b.files | {"data/autorun.sh": b"x"})), "data/autorun.sh: is no file of an archive")
    hidden = {f"{b.inner}sealed/.hidden": b"x"}
    yield Case("foreign-sealed-file", b.pack(forge.rebag(b.files | hidden)), ".hidden: is no file of an archive")
    yield Case("missing-program", b.pack(forge.rebag(without("data/verify.py"))), "data/verify.py: is missing")


def _json(b: Base) -> Iterator[Case]:
    manifest, place = b.files[f"{b.inner}sealed/manifest.json"], f"{b.inner}sealed/manifest.json"

    def changed(data: bytes, name: str = place) -> bytes:
        return b.pack(forge.rebag(b.files | {name: data}))

    yield Case("json-10000-deep", changed(b"[" * 10_000 + b"]" * 10_000), "nested deeper than 64")
    yield Case("json-duplicate-key", changed(manifest.replace(b'"run":', b'"run": "x",\n "run":', 1)), "stands twice in one object")
    yield Case("json-nan", changed(manifest.replace(b'"timings": {}', b'"timings": NaN', 1)), "got the number NaN")
    yield Case("json-infinity", changed(manifest.replace(b'"timings": {}', b'"timings": -Infinity', 1)), "got the number -Infinity")
    yield Case("json-latin-1", changed(manifest.replace(b"toy", b"to\xfc", 1)), "is not UTF-8")
    yield Case("json-utf-16", changed(manifest.decode().encode("utf-16")), "byte 0 is not UTF-8")
    yield Case("json-with-a-mark", changed(b"\xef\xbb\xbf" + manifest), "not JSON")
    yield Case("json-cut", changed(manifest[:-20]), "sealed/manifest.json: not JSON")
    yield Case("json-list", changed(b"[]\n"), "wanted a JSON object")
    yield Case("json-not-canonical", changed(manifest.replace(b"\n ", b"\n  ", 1)), "(S103)")
    yield Case("json-huge-number", changed(manifest.replace(b'"timings": {}', b'"timings": ' + b"9" * 5000, 1)), "not JSON (Exceeds")
    about = b.files["data/archive.json"]
    yield Case("unknown-format", changed(about.replace(b'"format": "1"', b'"format": "2"'), "data/archive.json"), "format '2'")
    yield Case("draft-is-no-list", changed(about.replace(b'"draft": []', b'"draft": 0'), "data/archive.json"), "draft is no list")


def _hdf5(b: Base, place: Path) -> Iterator[Case]:
    good = b.files[f"{b.inner}sealed/arrays.h5"]
    path = place / "x.h5"

    def made(change: Callable[[Any], None], **options: Any) -> bytes:
        path.write_bytes(good)
        with h5py.File(path, "r+", **options) as file:
            change(file)
        return b.resealed("arrays.h5", path.read_bytes())

    def replace(create: Callable[[Any], Any]) -> bytes:
        def change(file: Any) -> None:
            del file["main/alone"]
            create(file["main"])

        return made(change)

    (place / "secret").write_bytes(bytes(240))
    external = [(str(place / "secret"), 0, 240)]
    deep = h5py.string_dtype()
    compound = np.dtype([("a", "<f8")])
    plain: dict[str, Any] = {"dtype": "<f8", "track_times": False}
    yield Case(
        "hdf5-external-storage", replace(lambda g: g.create_dataset("alone", (6, 5), external=external, **plain)), "external storage"
    )
    yield Case("hdf5-external-link", made(lambda f: f.__setitem__("main/other", h5py.ExternalLink("/etc/x.h5", "/"))), "arrays.h5:main")
    yield Case("hdf5-soft-link", made(lambda f: f.__setitem__("main/other", h5py.SoftLink("/main/alone"))), "a soft link")
    yield Case("hdf5-dangling-soft-link", made(lambda f: f.__setitem__("other", h5py.SoftLink("/nowhere"))), "arrays.h5://other")
    yield Case("hdf5-cycle", made(lambda f: f["main"].__setitem__("again", f["/"])), "links to one object")
    yield Case("hdf5-twice-linked", made(lambda f: f["main"].__setitem__("again", f["main/alone"])), "arrays.h5:main/again: 2 links")
    yield Case("hdf5-virtual-missing-source", replace(_virtual), "damaged or of another version")
    yield Case("hdf5-shape-bomb", replace(lambda g: g.create_dataset("alone", (1 << 40, 64), **plain)), "never written")
    bomb: dict[str, Any] = {"chunks": (1 << 16,), "compression": "gzip", **plain}
    yield Case("hdf5-gzip-bomb", replace(lambda g: g.create_dataset("alone", data=np.zeros(1 << 22), **bomb)), "a filter")
    yield Case("hdf5-chunked", replace(lambda g: g.create_dataset("alone", (6, 5), chunks=(6, 5), **plain)), "chunked, not contiguous")
    growing: dict[str, Any] = {"maxshape": (None, 5), "chunks": (6, 5)}
    yield Case("hdf5-resizable", replace(lambda g: g.create_dataset("alone", (6, 5), **growing, **plain)), "arrays.h5:main/alone")
    yield Case("hdf5-object-dtype", replace(lambda g: g.create_dataset("alone", (6, 5), dtype=deep)), "numbers: of variable length")
    yield Case("hdf5-reference", replace(lambda g: g.create_dataset("alone", (6,), dtype=h5py.ref_dtype)), "numbers: a reference")
    yield Case("hdf5-compound", replace(lambda g: g.create_dataset("alone", (6, 5), dtype=compound)), "numbers: compound")
    yield Case("hdf5-big-endian", replace(lambda g: g.create_dataset("alone", data=np.zeros((6, 5), ">f8"))), "a float of another form")
    yield Case("hdf5-committed-type", made(lambda f: f.__setitem__("main/kind", np.dtype("<f8"))), "arrays.h5:main/kind")
    yield Case("hdf5-more-attributes", made(lambda f: f["main/alone"].attrs.__setitem__("x", np.bytes_("y"))), "the attribute")
    yield Case("hdf5-attribute-of-a-group", made(lambda f: f["main"].attrs.__setitem__("x", 1)), "only links is wanted")
    yield Case("hdf5-times", replace(lambda g: g.create_dataset("alone", (6, 5), dtype="<f8", track_times=True)), "a modification time")
    yield Case("hdf5-trailing-bytes", b.resealed("arrays.h5", good + b"x" * 100), "its superblock says")
    yield Case("hdf5-cut", b.resealed("arrays.h5", good[:-100]), "arrays.h5: the file has")
    yield Case("hdf5-user-block", b.resealed("arrays.h5", b"#!/bin/sh\n".ljust(512, b"\0") + good), "arrays.h5: a user block (")
    base_address = bytearray(good)
    base_address[24:32] = struct.pack("<Q", 512)
    yield Case("hdf5-base-address", b.resealed("arrays.h5", bytes(base_address)), "a user block, free-space")
    path.unlink()
    with h5py.File(path, "w", libver="latest") as file:
        file["main/alone"] = np.zeros((6, 5))
    yield Case("hdf5-new-superblock", b.resealed("arrays.h5", path.read_bytes()), "superblock 0")
    yield Case("hdf5-text", b.resealed("arrays.h5", b"not HDF5\n"), "arrays.h5: not an HDF5 file")
    tree = good.find(b"TREE")
    looped = bytearray(good)
    looped[tree + 5] = 9
    yield Case("hdf5-deep-tree", b.resealed("arrays.h5", bytes(looped)), "the tree of links is damaged")


def _virtual(group: Any) -> None:
    """A virtual dataset whose source is nowhere: it reads as zeros, a perfect error of 0."""
    form = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    form.set_obj_track_times(False)
    space = h5py.h5s.create_simple((6, 5))
    form.set_virtual(space, b"/nowhere.h5", b"x", space)
    h5py.h5d.create(group.id, b"alone", h5py.h5t.IEEE_F64LE, space, form)


def _zip(b: Base) -> Iterator[Case]:
    good = b.files[f"{b.inner}sealed/sources.zip"]
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        sources = {name: archive.read(name) for name in archive.namelist()}

    def made(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED, comment: bytes = b"", mode: int = 0o100644) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as archive:
            archive.comment = comment
            for name, content in sorted(entries.items()):
                info = zipfile.ZipInfo(name)
                info.create_system, info.external_attr, info.compress_type = 3, mode << 16, method
                archive.writestr(info, content)
        return b.resealed("sources.zip", out.getvalue())

    yield Case("zip-slip", made(sources | {"../../evil.py": b"x"}), "is not a relative path")
    yield Case("zip-absolute", made(sources | {"/evil.py": b"x"}), "'/evil.py' is not a relative path")
    yield Case("zip-bomb", made({"zeros.py": bytes(20_000_000)}, zipfile.ZIP_DEFLATED), "zeros.py: not stored plainly")
    yield Case("zip-comment", made(sources, comment=b"x"), "a comment, or bytes")
    yield Case("zip-symbolic-link", made(sources, mode=0o120777), "not made by Unix with mode 0644")
    yield Case("zip-undeclared-entry", made(sources | {"zz.py": b"x"}), "other entries than declared: zz.py")
    wrong = good[:14] + struct.pack("<I", zlib.crc32(b"x")) + good[18:]
    yield Case("zip-wrong-checksum", b.resealed("sources.zip", wrong), "its checksum is wrong")
    yield Case("zip-cut", b.resealed("sources.zip", good[:-30]), "sources.zip")


def main(arguments: list[str]) -> int:
    """ARCHIVE FOLDER: write all cases as FOLDER/<defect>.tar."""
    folder = Path(arguments[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases(Path(arguments[0]), folder):
        (folder / f"{case.name}.tar").write_bytes(case.data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
