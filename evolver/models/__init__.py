"""Where replies come from: `make_model` turns the config's model section into a Model (or a Privileged one)."""

from evolver.models.make import make_model

__all__ = ["make_model"]
