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
    FailingModel,
    FakeGrader,
    FakeSandbox,
    FakeSandboxes,
    ScriptedModel,
    reply,
)

__all__ = [
    "AuthorContract",
    "ExecutorContract",
    "FailingModel",
    "FakeGrader",
    "FakeSandbox",
    "FakeSandboxes",
    "GraderContract",
    "MachineContract",
    "ModelContract",
    "ObserverContract",
    "SandboxContract",
    "ScriptedModel",
    "reply",
]
