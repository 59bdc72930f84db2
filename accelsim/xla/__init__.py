"""The real compiler, each call in a child process."""

from accelsim.xla.compiler import Compiler
from accelsim.xla.schedule import ScheduledModule, schedule

__all__ = ["Compiler", "ScheduledModule", "schedule"]
