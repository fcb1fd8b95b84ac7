"""What tests are made of: fakes of every seam and the contracts that every implementation keeps."""

from evolver.testing.contracts import (
    AuthorContract,
    ExecutorContract,
    GraderContract,
    MachineContract,
    ModelContract,
    ObserverContract,
    SandboxContract,
)
from evolver.testing.fakes import (
    AlwaysFailModel,
    FailingModel,
    FakeGrader,
    FakeSandbox,
    FakeSandboxes,
    NoopModel,
    ScriptedModel,
    blank_png,
    home_tar,
    reply,
)

__all__ = [
    "AlwaysFailModel",
    "AuthorContract",
    "ExecutorContract",
    "FailingModel",
    "FakeGrader",
    "FakeSandbox",
    "FakeSandboxes",
    "GraderContract",
    "MachineContract",
    "ModelContract",
    "NoopModel",
    "ObserverContract",
    "SandboxContract",
    "ScriptedModel",
    "blank_png",
    "home_tar",
    "reply",
]
