"""From a model section of the config to the object that answers; vendors are imported only when they are asked for."""

from __future__ import annotations

from evolver.config import DemonstratorSpec, ModelSpec
from evolver.protocols import Model, Privileged


def make_model(spec: ModelSpec) -> Model | Privileged:
    """Raises `UsageError` when the key that the section names is not in the environment."""
    if isinstance(spec, DemonstratorSpec):
        from evolver.models.demonstrator import Demonstrator

        return Demonstrator(spec.slip_rate)
    from evolver.models.openai import OpenAIModel

    return OpenAIModel(spec)
