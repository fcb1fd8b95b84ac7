"""What an author is told of a run, within bounds of bytes and without a task of `select` or `test`."""

from evolver.evidence.bundle import BUNDLE_BYTES, SUMMARY_BYTES, evidence

__all__ = ["BUNDLE_BYTES", "SUMMARY_BYTES", "evidence"]
