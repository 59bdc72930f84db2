"""Benchmarks: each module has a TITLE, LONG (run only by name) and `rows(done)`.

`rows` yields one flat dict a measurement and leaves out what `done` already holds, so that a stopped
benchmark goes on where it was.
"""
