"""From a model section of the config to the object that answers; vendors are imported only when they are asked for."""

from __future__ import annotations

from importlib.metadata import entry_points

from evolver.config import DemonstratorSpec, ModelSpec, StudentSpec
from evolver.errors import NotReady
from evolver.protocols import Model, Privileged

PLUG_INS = "evolver.models"


def make_model(spec: ModelSpec) -> Model | Privileged:
    """Raises `UsageError` when the key that the section names is not in the environment, or no student is there, and
    `NotReady` when what serves students is not installed."""
    if isinstance(spec, DemonstratorSpec):
        from evolver.models.demonstrator import Demonstrator

        return Demonstrator(spec.slip_rate)
    if isinstance(spec, StudentSpec):
        return _student(spec)
    from evolver.models.openai import OpenAIModel

    return OpenAIModel(spec)


def _student(spec: StudentSpec) -> Model:
    """By an entry point, since this package knows nothing of weights."""
    for plug_in in entry_points(group=PLUG_INS, name=spec.kind):
        try:
            model: Model = plug_in.load()(spec.checkpoint)
        except ImportError as error:
            raise NotReady(f"a student as the model needs {error.name}: pip install -e '.[train]'") from error
        return model
    raise NotReady("a student as the model needs the package's entry points: pip install -e '.[train]'")
