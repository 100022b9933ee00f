"""Mechanisms that the experiments share, one idea a file, and the plumbing of evidence.

Nothing here knows what an experiment is about; nothing here is imported by `audit`.
"""
