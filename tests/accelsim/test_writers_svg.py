import dataclasses
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from accelsim.mapping import Mapping
from accelsim.writers.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, mapping_svg
from tests.accelsim.programs import SMALL, program_of, random_mapping, random_program

SVG = "{http://www.w3.org/2000/svg}"


def groups(program, mapping):
    root = ElementTree.fromstring(mapping_svg(program, SMALL, mapping))
    return root, root.findall(f"{SVG}g")


def boxes(group):
    return [rect for rect in group.findall(f"{SVG}rect") if rect.get("class") == "box"]


@given(seed=st.integers(0, 10**6))
def test_every_residency_is_a_box_in_the_right_place(seed):
    program = random_program(seed)
    mapping = random_mapping(program, SMALL, seed)
    _, drawn = groups(program, mapping)
    assert [int(group.get("data-buffer")) for group in drawn] == mapping.buffer.tolist()
    across = (WIDTH - LEFT - RIGHT) / program.steps
    upward = (HEIGHT - TOP - BOTTOM) / SMALL.capacity_bytes
    for row, group in enumerate(drawn):
        (box,) = boxes(group)
        size = int(program.buffer_size[mapping.buffer[row]])
        assert abs(float(box.get("x")) - (LEFT + mapping.start[row] * across)) < 0.01
        assert abs(float(box.get("width")) - (mapping.end[row] - mapping.start[row]) * across) < 0.01
        assert abs(float(box.get("y")) - (HEIGHT - BOTTOM - (mapping.offset[row] + size) * upward)) < 0.01
        assert abs(float(box.get("height")) - size * upward) < 0.01
        flights = [rect for rect in group.findall(f"{SVG}rect") if rect.get("class") == "flight"]
        expected = int(mapping.ready[row] > mapping.start[row]) + int(0 <= mapping.evict[row] < mapping.end[row])
        assert len(flights) == expected


@given(name=st.text(st.characters(codec=None)))
def test_no_name_breaks_the_picture(name):
    program = program_of(steps=[{"writes": ["t"]}], sizes={"t": 8})
    program = dataclasses.replace(program, buffer_name=(name,), name=name)
    row = {"buffer": [0], "offset": [0], "start": [0], "ready": [0], "end": [1], "prefetched": [False], "evict": [-1]}
    root, (group,) = groups(program, Mapping.from_residencies(program, **row))
    assert {element.tag for element in root.iter()} <= {
        SVG + tag for tag in ("svg", "title", "style", "defs", "pattern", "line", "rect", "text", "g")
    }
    assert len(group) == 2  # its title and its box


def test_markup_in_a_name_is_text():
    name = '<script>alert("&")</script>'
    program = program_of(steps=[{"writes": [name]}], sizes={name: 8})
    row = {"buffer": [0], "offset": [0], "start": [0], "ready": [0], "end": [1], "prefetched": [False], "evict": [-1]}
    _, (group,) = groups(program, Mapping.from_residencies(program, **row))
    assert group.find(f"{SVG}title").text == f"{name}: 8 bytes at offset 0, produced at step 0, until step 1"


def test_it_draws_capacity_axes_legend_and_both_themes():
    program = random_program(3)
    text = mapping_svg(program, SMALL, Mapping.all_slow(program))
    root = ElementTree.fromstring(text)
    words = " ".join(element.text or "" for element in root.iter(f"{SVG}text"))
    for word in ("capacity", "step", "being copied", "resident", "4 KiB"):
        assert word in words
    assert "prefers-color-scheme: dark" in text
    lines = [line for line in root.findall(f"{SVG}line") if line.get("class") == "capacity"]
    assert any(line.get("y1") == str(TOP) and line.get("x2") == str(WIDTH - RIGHT) for line in lines)


def test_an_empty_program_is_an_empty_picture():
    program = program_of(steps=[], sizes={})
    assert groups(program, Mapping.all_slow(program))[1] == []
