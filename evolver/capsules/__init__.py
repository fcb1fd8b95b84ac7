"""Capsules on disk: written once, opened only while nothing that they pin has changed."""

from evolver.capsules.contents import Contents, pinned
from evolver.capsules.folder import is_released, read_lock, write_capsule
from evolver.capsules.machine import image_of, images_of, verify_machine
from evolver.capsules.opened import Drifted, OpenedCapsule, open_capsule, verify
from harnesses.capsule import Capsule, Drift, differences

__all__ = [
    "Capsule",
    "Contents",
    "Drift",
    "Drifted",
    "OpenedCapsule",
    "differences",
    "image_of",
    "images_of",
    "is_released",
    "open_capsule",
    "pinned",
    "read_lock",
    "verify",
    "verify_machine",
    "write_capsule",
]
