"""The independent auditor of evidence: written from evidence/FORMAT.md, sharing no code with the programs that write evidence."""

__version__ = "1.1"
