"""The residencies of a mapping as a table for spreadsheets."""

from __future__ import annotations

import csv
import io

from accelsim.mapping import Mapping
from accelsim.program import Program

HEADER = (
    "buffer",
    "name",
    "size_bytes",
    "offset_bytes",
    "start_step",
    "ready_step",
    "end_step",
    "prefetched",
    "evict_step",
)


def mapping_csv(program: Program, mapping: Mapping) -> str:
    """Return one line a residency, in the mapping's order; an empty `evict_step` means that it is not evicted."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(HEADER)
    for row in range(mapping.residencies):
        buffer = int(mapping.buffer[row])
        evict = int(mapping.evict[row])
        writer.writerow(
            (
                buffer,
                _text(program.buffer_name[buffer]),
                int(program.buffer_size[buffer]),
                int(mapping.offset[row]),
                int(mapping.start[row]),
                int(mapping.ready[row]),
                int(mapping.end[row]),
                "yes" if mapping.prefetched[row] else "no",
                "" if evict < 0 else evict,
            )
        )
    return stream.getvalue()


def _text(name: str) -> str:
    # A spreadsheet runs a cell that begins like a formula; an apostrophe makes it text.
    return f"'{name}" if name[:1] in tuple("=+-@\t\r\n") else name
