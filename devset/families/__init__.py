"""Skill families by name: parametrised generators of task instances."""

from devset.families.catalog import families
from devset.families.skill import Binding, Family

__all__ = ["Binding", "Family", "families"]
