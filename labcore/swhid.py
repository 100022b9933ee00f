"""Software Heritage identifiers of files and folders: git's blob and tree hashes. Identifiers, not security digests (SHA-1).

Source: SWHID specification 1.1 (ISO/IEC 18670), types `cnt` and `dir`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any


def start(size: int) -> Any:
    """A running hash for a file of `size` bytes: update it with the content; its hexdigest names the blob."""
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def content(data: bytes) -> str:
    """The git blob of these bytes, in hex.

    >>> content(b"")
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    digest = start(len(data))
    digest.update(data)
    return str(digest.hexdigest())


def directory(blobs: Mapping[str, str]) -> str:
    """The SWHID of the folder that holds these files (path -> blob in hex), all of mode 0644.

    >>> directory({"a": content(b"")})
    'swh:1:dir:496d6428b9cf92981dc9495211e6e1120fb6f2ba'
    """
    return f"swh:1:dir:{_tree(blobs)}"


def _tree(blobs: Mapping[str, str]) -> str:
    files = {name: blob for name, blob in blobs.items() if "/" not in name}
    folders: dict[str, dict[str, str]] = {}
    for name, blob in blobs.items():
        first, slash, rest = name.partition("/")
        if slash:
            folders.setdefault(first, {})[rest] = blob
    entries = [(name, b"100644", blob) for name, blob in files.items()]
    # Git sorts a folder as if its name ended in a slash.
    entries += [(name + "/", b"40000", _tree(inner)) for name, inner in folders.items()]
    body = b"".join(mode + b" " + name.rstrip("/").encode() + b"\0" + bytes.fromhex(blob) for name, mode, blob in sorted(entries))
    return hashlib.sha1(b"tree %d\0" % len(body) + body, usedforsecurity=False).hexdigest()
