"""From what the user has to a module, a program, or a mapping."""
