"""Skill families by name: parametrised generators of task instances."""

from devset.families.catalog import binding_of, families
from devset.families.skill import Binding, Family
from devset.families.wrong import generic_mutants

__all__ = ["Binding", "Family", "binding_of", "families", "generic_mutants"]
