"""BagIt: the cases of the Library of Congress's conformance suite that we can state ourselves, valid bags and invalid ones."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labcore import bag
from labcore.errors import Refused

DECLARATION = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
OLD = DECLARATION.replace("1.0", "0.97")


def digest(data: bytes, algorithm: str = "sha256") -> str:
    return hashlib.new(algorithm, data).hexdigest()


def bagged(payload: dict[str, bytes], algorithm: str = "sha256", **tags: str | bytes) -> dict[str, bytes]:
    """A valid bag in memory; `tags` replaces or adds tag files (`__` stands for `-`, `_txt` for `.txt`), covered afresh."""
    escape = {name: name.replace("%", "%25").replace("\n", "%0A").replace("\r", "%0D") for name in payload}
    files: dict[str, bytes] = {f"data/{name}": data for name, data in payload.items()}
    files["bagit.txt"] = DECLARATION.encode()
    listed = "".join(f"{digest(data, algorithm)}  data/{escape[name]}\n" for name, data in payload.items())
    files[f"manifest-{algorithm}.txt"] = listed.encode()
    for name, text in tags.items():
        files[name.replace("__", "-").replace("_txt", ".txt")] = text.encode() if isinstance(text, str) else text
    return cover(files, algorithm)


def cover(files: dict[str, bytes], algorithm: str = "sha256") -> dict[str, bytes]:
    tags = sorted(name for name in files if not name.startswith(("data/", "tagmanifest-")))
    listed = "".join(f"{digest(files[name], algorithm)}  {name}\n" for name in tags)
    return {**files, f"tagmanifest-{algorithm}.txt": listed.encode()}


def without(files: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name not in names}


def changed(files: dict[str, bytes], name: str, change: Callable[[bytes], bytes], covered: bool = True) -> dict[str, bytes]:
    files = {**files, name: change(files[name])}
    return cover(files) if covered else files


PLAIN = {"a.txt": b"one\n", "deep/b c.bin": b"\0\1", "empty": b""}
GOOD = bagged(PLAIN)
FETCH = "http://example.org/a - data/a.txt\n"
LISTED, TAGS = GOOD["manifest-sha256.txt"].decode(), GOOD["tagmanifest-sha256.txt"]
ZEROS = "0" * 64


def utf16(files: dict[str, bytes]) -> dict[str, bytes]:
    """The bag with its tag files in UTF-16, as its declaration says."""
    wide = {name: data.decode().encode("utf-16") if name.startswith("manifest") else data for name, data in files.items()}
    wide = cover({**wide, "bagit.txt": DECLARATION.replace("UTF-8", "UTF-16").encode()})
    return {**wide, "tagmanifest-sha256.txt": wide["tagmanifest-sha256.txt"].decode().encode("utf-16")}


def more(line: str) -> dict[str, bytes]:
    """The good bag with one more line in its manifest."""
    return bagged(PLAIN, manifest__sha256_txt=f"{LISTED}{line}\n")


def tagged(data: bytes) -> dict[str, bytes]:
    """The good bag with another tag manifest."""
    return {**GOOD, "tagmanifest-sha256.txt": data}


def upper(data: bytes) -> bytes:
    return b"".join(line[:64].upper() + line[64:] for line in data.splitlines(True))


def percent() -> dict[str, bytes]:
    """Version 0.97 knows no escapes."""
    listed = f"{digest(b'x')}  data/a%0Ab\n".encode()
    return cover({"bagit.txt": OLD.encode(), "data/a%0Ab": b"x", "manifest-sha256.txt": listed})


def disagreeing() -> dict[str, bytes]:
    """SHA-256 right, MD5 wrong."""
    other = bagged(PLAIN, "md5")["manifest-md5.txt"]
    return cover({**GOOD, "manifest-md5.txt": b"".join(b"0" * 32 + line[32:] for line in other.splitlines(True))})


VALID = {
    "basic": GOOD,
    "no-tag-manifest": without(GOOD, "tagmanifest-sha256.txt"),
    "no-payload-files": bagged({}),
    "names-with-spaces": bagged({" a  b ": b"x"}),
    "names-in-unicode": bagged({"Schlüssel/鍵": b"x"}),
    "percent-encoded-line-breaks": bagged({"a\nb": b"x", "c\rd": b"y", "e%f": b"z"}),
    "older-version-keeps-percent": percent(),
    "uppercase-digests": changed(GOOD, "manifest-sha256.txt", upper),
    "crlf-manifest": changed(GOOD, "manifest-sha256.txt", lambda data: data.replace(b"\n", b"\r\n")),
    "cr-manifest": changed(GOOD, "manifest-sha256.txt", lambda data: data.replace(b"\n", b"\r")),
    "crlf-declaration": changed(GOOD, "bagit.txt", lambda data: data.replace(b"\n", b"\r\n")),
    "no-line-break-at-the-end": changed(GOOD, "manifest-sha256.txt", lambda data: data.rstrip(b"\n")),
    "tabs-between": changed(GOOD, "manifest-sha256.txt", lambda data: data.replace(b"  data", b"\t data")),
    "asterisk-of-a-tool": changed(GOOD, "manifest-sha256.txt", lambda data: data.replace(b"  data", b" *data")),
    "leading-dot-slash": changed(GOOD, "manifest-sha256.txt", lambda data: data.replace(b"  data", b"  ./data")),
    "md5-alone": bagged(PLAIN, "md5"),
    "sha512": bagged(PLAIN, "sha512"),
    "two-algorithms": cover({**GOOD, **without(bagged(PLAIN, "md5"), "tagmanifest-md5.txt")}),
    "bag-info": bagged(PLAIN, bag__info_txt="Contact-Name: a\nNote: one\n  two\nNote: again\nEmpty:\nPayload-Oxum: 6.3\n"),
    "unlisted-tag-file": {**GOOD, "notes.txt": b"x"},
    "tag-folder": cover({**GOOD, "tags/deep/x.txt": b"x"}),
    "fetch-that-is-complete": bagged(PLAIN, fetch_txt=FETCH),
    "utf-16-tag-files": utf16(GOOD),
    "latin-1-tag-files": bagged({}, bagit_txt=DECLARATION.replace("UTF-8", "ISO-8859-1"), bag__info_txt="Note: ü\n".encode("latin-1")),
    "older-version": bagged(PLAIN, bagit_txt=OLD),
    "older-version-in-one-manifest-of-two": bagged(PLAIN, bagit_txt=OLD, manifest__md5_txt=f"{digest(b'', 'md5')}  data/empty\n"),
}  # fmt: skip
INVALID = {
    "no-declaration": (without(GOOD, "bagit.txt"), "no bagit.txt"),
    "no-payload-folder": (without(GOOD, *(f"data/{name}" for name in PLAIN)), "no folder data/"),
    "no-manifest": (without(GOOD, "manifest-sha256.txt"), "no payload manifest"),
    "mark-before-declaration": (bagged(PLAIN, bagit_txt=b"\xef\xbb\xbf" + DECLARATION.encode()), "byte-order mark"),
    "declaration-lacks-encoding": (bagged(PLAIN, bagit_txt="BagIt-Version: 1.0\n"), "got 1 lines"),
    "declaration-in-the-other-order": (bagged(PLAIN, bagit_txt="".join(DECLARATION.splitlines(True)[::-1])), "wanted BagIt-Version"),
    "declaration-without-space": (bagged(PLAIN, bagit_txt=DECLARATION.replace(": ", ":")), "space behind the colon"),
    "declaration-with-space-before-the-colon": (bagged(PLAIN, bagit_txt=DECLARATION.replace(":", " :")), "wanted BagIt-Version"),
    "version-no-number": (bagged(PLAIN, bagit_txt=DECLARATION.replace("1.0", ".97")), "wanted BagIt-Version"),
    "unknown-version": (bagged(PLAIN, bagit_txt=DECLARATION.replace("1.0", "1.1")), "version 1.1"),
    "unknown-encoding": (bagged(PLAIN, bagit_txt=DECLARATION.replace("UTF-8", "EBCDIC")), "encoding 'EBCDIC'"),
    "unknown-algorithm": (bagged(PLAIN, manifest__crc32_txt="00000000  data/a.txt\n"), "unknown algorithm"),
    "changed-payload": (changed(GOOD, "data/a.txt", lambda data: b"two\n"), "data/a.txt: does not have the SHA256"),
    "changed-tag-file": (changed(GOOD, "bagit.txt", lambda data: data.replace(b"\n", b"\r\n"), covered=False), "bagit.txt: does not have"),
    "missing-payload": (without(GOOD, "data/empty"), "data/empty: is listed"),
    "unlisted-payload": ({**GOOD, "data/more": b""}, "data/more: is not listed"),
    "missing-tag-file": (without(bagged(PLAIN, notes_txt="x"), "notes.txt"), "notes.txt: is listed"),
    "in-one-manifest-of-two": (bagged(PLAIN, manifest__md5_txt=f"{digest(b'', 'md5')}  data/empty\n"), "not listed in manifest-md5"),
    "manifests-disagree": (disagreeing(), "does not have the MD5"),
    "line-twice": (bagged(PLAIN, manifest__sha256_txt=LISTED + LISTED.splitlines(True)[0]), "stands twice"),
    "line-twice-another-digest": (more(f"{ZEROS}  data/a.txt"), "stands twice"),
    "short-digest": (bagged(PLAIN, manifest__sha256_txt=LISTED[1:]), "wanted 64 hexadecimal digits"),
    "path-leaves-the-bag": (more(f"{ZEROS}  data/../../x"), "without '.', '..'"),
    "absolute-path": (more(f"{ZEROS}  /etc/passwd"), "wanted one inside the bag"),
    "home-path": (more(f"{ZEROS}  ~/x"), "wanted one inside the bag"),
    "drive-path": (more(f"{ZEROS}  C:x"), "wanted one inside the bag"),
    "manifest-lists-a-tag-file": (more(f"{digest(DECLARATION.encode())}  bagit.txt"), "outside of data/"),
    "tag-manifest-lists-payload": (tagged(TAGS + LISTED.encode()), "which is payload"),
    "tag-manifest-lists-itself": (tagged(TAGS + f"{ZEROS}  tagmanifest-sha256.txt\n".encode()), "none of its kind"),
    "tag-manifest-lacks-the-manifest": (tagged(TAGS.splitlines(True)[0]), "does not list manifest-sha256.txt"),
    "fetch-incomplete": (without(bagged(PLAIN, fetch_txt=FETCH), "data/a.txt"), "is to be fetched|is listed"),
    "fetch-outside": (bagged(PLAIN, fetch_txt="http://example.org/x - bagit.txt\n"), "outside of data/"),
    "fetch-parent": (bagged(PLAIN, fetch_txt="http://example.org/x - data/../../x\n"), "without '.', '..'"),
    "fetch-malformed": (bagged(PLAIN, fetch_txt="http://example.org/x\n"), "wanted an address"),
    "wrong-oxum": (bagged(PLAIN, bag__info_txt="Payload-Oxum: 7.3\n"), "the payload has 6.3"),
    "oxum-twice": (bagged(PLAIN, bag__info_txt="Payload-Oxum: 6.3\nPayload-Oxum: 6.3\n"), "stands 2 times"),
    "bag-info-malformed": (bagged(PLAIN, bag__info_txt="no colon here\n"), "wanted 'Label: value'"),
    "bag-info-other-encoding": (bagged(PLAIN, bag__info_txt=b"Note: \xfc\n"), "not UTF-8, which"),
    "utf-8-where-utf-16-is-declared": (bagged(PLAIN, bagit_txt=DECLARATION.replace("UTF-8", "UTF-16")), "manifest-sha256.txt"),
    "names-differ-in-case": (bagged({"a": b"", "A": b""}), "in case or in Unicode form"),
    "names-differ-in-unicode-form": (bagged({"\u00fc": b"", "u\u0308": b""}), "in case or in Unicode form"),
}  # fmt: skip


def write(files: dict[str, bytes], root: Path) -> bag.Folder:
    (root / "data").mkdir(parents=True)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    if not any(name.startswith("data/") for name in files) and b"  data/" in files.get("manifest-sha256.txt", b""):
        (root / "data").rmdir()
    return bag.Folder(root)


@pytest.mark.parametrize("name", VALID)
def test_valid_bags_are_accepted(name: str, tmp_path: Path) -> None:
    found = bag.check(write(VALID[name], tmp_path / "bag"), "bag")
    assert found.payload.keys() == {path for path in VALID[name] if path.startswith("data/")}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_bags_are_refused(name: str, tmp_path: Path) -> None:
    files, reason = INVALID[name]
    with pytest.raises(Refused, match=reason):
        bag.check(write(files, tmp_path / "bag"), "bag")


def test_links_and_pipes_are_refused(tmp_path: Path) -> None:
    import os

    files = write(GOOD, tmp_path / "bag")
    (tmp_path / "bag" / "data" / "link").symlink_to("/etc/passwd")
    with pytest.raises(Refused, match="symbolic link"):
        bag.check(files, "bag")
    (tmp_path / "bag" / "data" / "link").unlink()
    os.mkfifo(tmp_path / "bag" / "data" / "pipe")
    with pytest.raises(Refused, match="not a plain file"):
        bag.check(files, "bag")


def test_bag_info_keeps_order_and_repeats(tmp_path: Path) -> None:
    found = bag.check(write(VALID["bag-info"], tmp_path / "bag"), "bag")
    assert found.info == [("Contact-Name", "a"), ("Note", "one two"), ("Note", "again"), ("Empty", ""), ("Payload-Oxum", "6.3")]


def test_what_we_write_is_valid(tmp_path: Path) -> None:
    payload = {f"data/{name}": data for name, data in {**PLAIN, "a%b": b"1"}.items()}
    info: list[tuple[str, Any]] = [("Note", "x")]
    files = payload | bag.tag_files({name: digest(data) for name, data in payload.items()}, info)
    assert bag.check(write(files, tmp_path / "bag"), "bag").tags.keys() == {"bagit.txt", "bag-info.txt", "manifest-sha256.txt"}
