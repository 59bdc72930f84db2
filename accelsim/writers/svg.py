"""The memory map as a picture: time to the right, offset upwards."""

from __future__ import annotations

import colorsys
import re
from html import escape

from accelsim.device import Device
from accelsim.mapping import Mapping
from accelsim.program import Program

WIDTH, HEIGHT = 1200, 640
LEFT, RIGHT, TOP, BOTTOM = 96, 24, 72, 56

# Colours that are readable on light and on dark; a viewer without a theme shows the light one.
STYLE = """
.paper { fill: #ffffff } .ink { fill: #1b1f24 } .soft { fill: #57606a } .axis { stroke: #8c959f }
.capacity { stroke: #cf222e } .box { stroke: #1b1f24; stroke-opacity: 0.5 } .flight { fill: url(#hatch) }
.hatch { stroke: #1b1f24 }
text { font: 12px ui-sans-serif, system-ui, sans-serif } .title { font-size: 16px; font-weight: 600 }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 } .ink { fill: #e6edf3 } .soft { fill: #9198a1 } .axis { stroke: #6e7681 }
.capacity { stroke: #ff7b72 } .box { stroke: #e6edf3; stroke-opacity: 0.5 } .hatch { stroke: #e6edf3 }
}
"""


def mapping_svg(program: Program, device: Device, mapping: Mapping) -> str:
    """Return the memory map as SVG; hovering a box names its buffer, hatching shows bytes in flight."""
    steps = max(program.steps, 1)
    across = (WIDTH - LEFT - RIGHT) / steps
    upward = (HEIGHT - TOP - BOTTOM) / device.capacity_bytes
    floor = HEIGHT - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>Memory map of {_text(program.name)}</title>",
        f"<style>{STYLE}</style>",
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><line class="hatch" y2="6" stroke-width="2" stroke-opacity="0.55"/>'
        "</pattern></defs>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="ink title" x="{LEFT}" y="28">{_text(program.name)} on {_text(device.title)}</text>',
        *_legend(),
    ]
    for row in range(mapping.residencies):
        parts += _residency(program, mapping, row, across=across, upward=upward, floor=floor)
    parts += _axes(program.steps, device.capacity_bytes, across=across, floor=floor)
    return "\n".join([*parts, "</svg>\n"])


def _residency(
    program: Program, mapping: Mapping, row: int, *, across: float, upward: float, floor: float
) -> list[str]:
    buffer = int(mapping.buffer[row])
    size, offset = int(program.buffer_size[buffer]), int(mapping.offset[row])
    start, ready, end = int(mapping.start[row]), int(mapping.ready[row]), int(mapping.end[row])
    evict = int(mapping.evict[row])
    y, height = floor - (offset + size) * upward, size * upward

    def box(low: int, high: int, *, css: str, fill: str = "") -> str:
        x, width = LEFT + low * across, (high - low) * across
        return f'<rect class="{css}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"{fill}/>'

    colour = f' fill="{_colour(buffer)}" fill-opacity="0.85"'
    came = f"prefetched from step {start}, ready at {ready}" if mapping.prefetched[row] else f"produced at step {start}"
    went = f", evicted from step {evict}" if evict >= 0 else ""
    name = _text(program.buffer_name[buffer])
    parts = [
        f'<g data-buffer="{buffer}">',
        f"<title>{name}: {size:,} bytes at offset {offset:,}, {came}{went}, until step {end}</title>",
        box(start, end, css="box", fill=colour),
    ]
    if ready > start:
        parts.append(box(start, ready, css="flight"))
    if 0 <= evict < end:
        parts.append(box(evict, end, css="flight"))
    return [*parts, "</g>"]


def _legend() -> list[str]:
    y = 44
    return [
        f'<rect class="box" x="{LEFT}" y="{y}" width="18" height="12" fill="#547fd4" fill-opacity="0.85"/>',
        f'<text class="ink" x="{LEFT + 26}" y="{y + 10}">resident, one colour a buffer</text>',
        f'<rect class="box" x="{LEFT + 220}" y="{y}" width="18" height="12" fill="none"/>',
        f'<rect class="flight" x="{LEFT + 220}" y="{y}" width="18" height="12"/>',
        f'<text class="ink" x="{LEFT + 246}" y="{y + 10}">being copied (prefetch or eviction)</text>',
        f'<line class="capacity" x1="{LEFT + 480}" x2="{LEFT + 498}" y1="{y + 6}" y2="{y + 6}" stroke-width="2"/>',
        f'<text class="ink" x="{LEFT + 506}" y="{y + 10}">capacity</text>',
    ]


def _axes(steps: int, capacity: int, *, across: float, floor: float) -> list[str]:
    right = WIDTH - RIGHT
    parts = [
        f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{floor}"/>',
        f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{floor}" y2="{floor}"/>',
        f'<line class="capacity" x1="{LEFT}" x2="{right}" y1="{TOP}" y2="{TOP}" stroke-width="2" '
        'stroke-dasharray="6 4"/>',
        f'<text class="soft" x="{(LEFT + right) / 2}" y="{HEIGHT - 12}" text-anchor="middle">step</text>',
    ]
    for part in range(5):
        y = floor - (floor - TOP) * part / 4
        label = _bytes(capacity * part / 4)
        parts.append(f'<text class="soft" x="{LEFT - 8}" y="{y + 4:.2f}" text-anchor="end">{label}</text>')
    for step in sorted({steps * part // 8 for part in range(9)}):
        x = LEFT + step * across
        parts.append(f'<text class="soft" x="{x:.2f}" y="{floor + 18}" text-anchor="middle">{step}</text>')
    return parts


def _colour(buffer: int) -> str:
    # Neighbours in the list of buffers get hues that are far apart (the golden angle).
    channels = colorsys.hls_to_rgb(buffer * 137.508 % 360 / 360, 0.58, 0.6)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


def _bytes(amount: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.4g} {unit}"
        amount /= 1024
    return f"{amount:.4g} TiB"


def _text(name: str) -> str:
    # XML 1.0 has no way to write most control characters, nor lone surrogates.
    return escape(re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", name))
