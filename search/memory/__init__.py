"""Which buffers live in fast memory, when, and at which offset."""

from search.memory.problem import Problem
from search.memory.run import run
from search.memory.settings import catalogue, parse_settings

__all__ = ["Problem", "catalogue", "parse_settings", "run"]
