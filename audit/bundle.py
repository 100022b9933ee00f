"""sources.zip (FORMAT 7): read by hand, entry after entry, so that every byte of it is accounted for."""

from __future__ import annotations

import hashlib
import re
import struct
import zlib

from audit.findings import Damaged, Findings

FILE = "sources.zip"
DATE = 0x21
"""1980-01-01 in the archive's own form."""
_FROM = re.compile(r"^[ \t]*from[ \t]+([A-Za-z_][\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)", re.MULTILINE)
_WORD = re.compile(r"\w+")
_IMPORT = re.compile(r"^[ \t]*import[ \t]+([^\n#]*)", re.MULTILINE)


def check(data: bytes, declared: dict[str, str], experiment: str, findings: Findings) -> None:
    """Form, names and digests of the archive, and that no project module that a source imports is left out."""
    try:
        members = entries(data)
    except Damaged as error:
        findings.damaged(error)
        return
    except struct.error:
        findings.add("S108", FILE, "cut")
        return
    if list(members) != sorted(declared):
        odd = sorted(set(members) ^ set(declared)) or ["the order"]
        findings.add("S108", FILE, f"other entries than declared: {', '.join(odd[:4])}")
    for name, content in members.items():
        digest = hashlib.sha256(content).hexdigest()
        if name in declared and declared[name] != digest:
            findings.add("S108", f"{FILE}:{name}", "the digest of the entry", declared[name], digest)
    if f"experiments/{experiment}/experiment.py" not in members:
        findings.add("S108", FILE, "the experiment's own module is missing")
    for name in missing_imports(members):
        findings.add("S108", FILE, f"a source imports {name}, which is missing")


def entries(data: bytes) -> dict[str, bytes]:
    """Name -> content, in the archive's order; Damaged (S108) at the first byte that section 7 does not allow."""

    def wrong(text: str) -> Damaged:
        return Damaged("S108", FILE, text)

    members: dict[str, bytes] = {}
    central: list[bytes] = []
    at = 0
    while data[at : at + 4] == b"PK\x03\x04":
        needed, flags, method, clock, date, crc, packed, size, long, extra = struct.unpack_from("<HHHHHIIIHH", data, at + 4)
        raw = data[at + 30 : at + 30 + long]
        content = data[at + 30 + long : at + 30 + long + size]
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise wrong("a name is not UTF-8") from None
        safe = name and not name.startswith("/") and not {"", ".", ".."} & set(name.split("/")) and "\\" not in name and name.isprintable()
        if not safe or name in members:
            raise wrong(f"the name {name!r} is not a relative path, or stands twice")
        plain = (method, clock, date, extra) == (0, 0, DATE, 0) and packed == size and flags == (0 if raw.isascii() else 0x800)
        if not plain or needed not in (10, 20):
            raise wrong(f"{name}: not stored plainly with the date 1980-01-01")
        if len(content) != size or zlib.crc32(content) != crc:
            raise wrong(f"{name}: cut, or its checksum is wrong")
        members[name] = content
        central.append(
            struct.pack("<HHHHHIIIHHHHH", needed, flags, 0, 0, DATE, crc, size, size, long, 0, 0, 0, 0) + struct.pack("<I", at) + raw
        )
        at += 30 + long + size
    start = at
    for entry in central:
        got = data[at : at + 10 + len(entry)]
        made, attributes = struct.unpack_from("<4xH32xI", got)
        if got[:4] != b"PK\x01\x02" or made >> 8 != 3 or attributes not in (0o644 << 16, 0o100644 << 16):
            raise wrong("the directory is damaged, or an entry is not made by Unix with mode 0644")
        if got[6:38] + got[42:] != entry:
            raise wrong("the directory does not agree with the entries")
        at += len(got)
    count = len(members)
    if data[at:] != b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, count, count, at - start, start, 0):
        raise wrong("a comment, or bytes that no entry accounts for")
    return members


def missing_imports(members: dict[str, bytes]) -> list[str]:
    """Modules of the project's own packages that some source imports but the archive lacks.

    Read from the text of the import statements, so a module that is loaded by its name at run time is not seen.
    """
    texts = {name: content.decode("utf-8", "replace") for name, content in members.items() if name.endswith(".py")}
    packages = {name.split("/")[0] for name in texts if name.endswith("/__init__.py")}
    wanted: set[str] = set()
    for text in texts.values():
        for names in _IMPORT.findall(text):
            wanted |= set(_listed(names))
        for module, names in _FROM.findall(text):
            wanted.add(module)
            package = texts.get(f"{module.replace('.', '/')}/__init__.py")
            if package is not None:  # names that the package does not define are modules in it
                defined = set(_WORD.findall(package))
                wanted |= {f"{module}.{name}" for name in _listed(names) if name not in defined}
    lacking: set[str] = set()
    for parts in (module.split(".") for module in wanted):
        if parts[0] in packages:
            path = "/".join(parts)
            if f"{path}.py" not in texts and f"{path}/__init__.py" not in texts:
                lacking.add(".".join(parts))
            heads = (parts[:length] for length in range(1, len(parts)))
            lacking |= {".".join(head) for head in heads if f"{'/'.join(head)}/__init__.py" not in texts}
    return sorted(lacking)


def _listed(names: str) -> list[str]:
    """The names in `a, b as c` or `(a, b)`."""
    return [part.split()[0] for part in names.strip("() \n").split(",") if part.strip()]
