"""Sandboxes: disposable machines for rollouts, in Docker or in bubblewrap, on one shared root file system."""

from evolver.sandboxes.backend import old_versions, open_backend, reap

__all__ = ["old_versions", "open_backend", "reap"]
