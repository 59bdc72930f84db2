"""Which buffers live in fast memory, when, and at which offset.

Import from the modules: `settings` is also read by processes that must not load numba.
"""
