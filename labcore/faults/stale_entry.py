"""An index keeps pointing to a block that was given to other content (BR-26).

Faulty: `Kept`. Twin: `Dropped`. Control: asking before the block is given away.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Dropped:
    """One block; the index forgets the old content when the block is filled anew."""

    owner: int | None = None
    index: dict[int, int] = field(default_factory=dict)

    def fill(self, content: int) -> None:
        """Give the block to new content."""
        self.index.clear()
        self.index[content], self.owner = 0, content

    def look_up(self, content: int) -> int | None:
        """What a request for this content reads; None: a miss."""
        return self.owner if content in self.index else None


@dataclass
class Kept(Dropped):
    """The old entry stays."""

    def fill(self, content: int) -> None:
        self.index[content], self.owner = 0, content
