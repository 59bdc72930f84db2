import json
from collections import Counter

import pytest

from accelsim.document import GROUP_LIMIT, graph_document, node_details
from accelsim.errors import InputError
from accelsim.readers.module import parse
from accelsim.xla import Compiler, schedule
from accelsim.xla.schema import decode_module
from tests.accelsim.modules import FILES, LOOP, REDUCER, RESNET, chain, entry

FUSED = entry(
    "p = f32[8,4] parameter(0)",
    "zero = f32[] constant(0)",
    "f = f32[8,4] fusion(p), kind=kLoop, calls=twice",
    "r = f32[8] reduce(f, zero), dimensions={1}, to_apply=add",
    "q = f32[8] reduce(p, zero), dimensions={1}, to_apply=add",
    'ROOT total = f32[8] add(r, q), control-predecessors={f}, metadata={op_name="jit(f)/<b>sum</b>" source_line=7}',
    before=REDUCER + "twice {\n  x = f32[8,4] parameter(0)\n  ROOT y = f32[8,4] add(x, x)\n}\n\n",
)


@pytest.fixture(scope="module")
def compiler():
    with Compiler(children=1) as pool:
        yield pool


@pytest.fixture(scope="module")
def proto(compiler):
    return lambda data: parse(data, compiler=compiler).proto


def children(document) -> Counter[int]:
    count = Counter(document["nodes"]["group"])
    count.update(parent for parent in document["groups"]["parent"] if parent >= 0)
    return count


def assert_consistent(document, module) -> None:
    nodes, edges, groups = document["nodes"], document["edges"], document["groups"]
    instructions = [item for computation in module.computations for item in computation.instructions]
    assert len({len(column) for column in nodes.values()}) == 1
    assert len({len(column) for column in edges.values()}) == 1
    assert len({len(column) for column in groups.values()}) == 1
    assert nodes["name"] == [item.name for item in instructions]
    assert len(set(nodes["id"])) == len(instructions)
    assert len(set(groups["id"])) == len(groups["id"])
    assert len(edges["source"]) == sum(len(i.operand_ids) + len(i.control_predecessor_ids) for i in instructions)
    assert all(0 <= group < len(groups["id"]) for group in nodes["group"])
    assert all(-1 <= parent < number for number, parent in enumerate(groups["parent"]))
    assert all(-1 <= caller < len(instructions) for caller in groups["caller"])
    assert groups["parent"][document["entry"]] == -1
    json.dumps(document)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[:2])
@pytest.mark.parametrize("view", ["source", "scheduled"])
def test_every_file_has_a_consistent_document(path, view, compiler, proto):
    data = proto(path.read_bytes())
    if view == "scheduled":
        data = schedule(data, compiler=compiler).proto
    assert_consistent(graph_document(data), decode_module(data))


def test_nodes_have_shape_bytes_and_opcode(proto):
    nodes = graph_document(proto(FUSED))["nodes"]
    row = nodes["id"].index("f")
    assert [nodes[key][row] for key in ("op", "shape", "bytes")] == ["fusion", "f32[8,4]", 128]


def test_nodes_have_the_operations_of_one_execution(proto):
    nodes = graph_document(proto(FUSED))["nodes"]
    assert [nodes["flops"][nodes["id"].index(name)] for name in ("p", "f", "r")] == [0, 32, 24]


def test_edges_have_operand_numbers(proto):
    document = graph_document(proto(FUSED))
    name = document["nodes"]["id"]
    edges = document["edges"]
    rows = zip(edges["source"], edges["target"], edges["targetPort"], strict=True)
    into = [(name[source], port) for source, target, port in rows if name[target] == "total"]
    assert into == [("r", 0), ("q", 1), ("f", -1)]


def test_computations_are_groups_inside_the_group_of_their_first_caller(proto):
    document = graph_document(proto(FUSED))
    groups, name = document["groups"], document["nodes"]["id"]
    rows = {
        groups["name"][number]: (groups["kind"][number], groups["parent"][number], name[groups["caller"][number]])
        for number in range(len(groups["id"]))
        if groups["caller"][number] >= 0
    }
    assert rows == {"twice": ("fusion", document["entry"], "f"), "add": ("reduce", document["entry"], "r")}


def test_every_call_of_a_shared_computation_is_listed(proto):
    document = graph_document(proto(FUSED))
    calls = zip(document["calls"]["node"], document["calls"]["group"], strict=True)
    assert {(document["nodes"]["id"][node], document["groups"]["name"][group]) for node, group in calls} == {
        ("f", "twice"),
        ("r", "add"),
        ("q", "add"),
    }


def test_loops_hold_their_body_and_condition(proto):
    groups = graph_document(proto(LOOP.encode()))["groups"]
    kinds = dict(zip(groups["name"], groups["kind"], strict=True))
    assert kinds == {"e": "computation", "body": "while", "cond": "while"}


def test_a_computation_of_readable_size_is_not_divided(proto):
    document = graph_document(proto(chain(GROUP_LIMIT - 1)))
    assert document["groups"]["kind"] == ["computation"]


def test_a_large_computation_is_divided_by_scope(proto):
    document = graph_document(proto(chain(1000, scope="jit(f)/layer{1}/add")))
    scopes = [
        n for n, kind in zip(document["groups"]["name"], document["groups"]["kind"], strict=True) if kind == "scope"
    ]
    assert scopes == ["jit(f)", *(f"layer{number}" for number in range(10))]
    assert max(children(document).values()) <= GROUP_LIMIT


@pytest.mark.parametrize("scope", ["", "jit(f)/add", "jit(f)/layer{0}/add"], ids=["none", "one", "each its own"])
def test_where_scopes_do_not_help_neighbours_make_blocks(scope, proto):
    document = graph_document(proto(chain(1000, scope=scope)))
    assert "block" in document["groups"]["kind"]
    assert max(children(document).values()) <= GROUP_LIMIT


def test_blocks_follow_the_order_of_the_operands(proto):
    document = graph_document(proto(chain(1000)))
    group = document["nodes"]["group"]
    edges = zip(document["edges"]["source"], document["edges"]["target"], strict=True)
    crossing = {(group[source], group[target]) for source, target in edges if group[source] != group[target]}
    assert not {(target, source) for source, target in crossing} & crossing


def test_many_parameters_have_a_group(proto):
    document = graph_document(proto(RESNET.read_bytes()))
    (parameters,) = (n for n, kind in enumerate(document["groups"]["kind"]) if kind == "parameters")
    inside = [
        op
        for op, group in zip(document["nodes"]["op"], document["nodes"]["group"], strict=True)
        if group == parameters or document["groups"]["parent"][group] == parameters
    ]
    assert inside == ["parameter"] * 321


def test_fifty_thousand_instructions_have_groups_of_readable_size(proto):
    document = graph_document(proto(chain(50_000, scope="jit(f)/layer{0}/add")))
    assert max(children(document).values()) <= GROUP_LIMIT


def test_details_show_attributes_operands_users_and_metadata(proto):
    data = proto(FUSED)
    details = node_details(data, "r")
    assert details["attributes"] == {"dimensions": [1]}
    assert [operand["name"] for operand in details["operands"]] == ["f", "zero"]
    assert [user["name"] for user in details["users"]] == ["total"]
    assert details["calls"] == ["add"]
    details = node_details(data, "total")
    assert details["metadata"] == {"op_name": "jit(f)/<b>sum</b>", "source_line": 7}
    assert details["attributes"] == {"control_predecessors": ["f"]}
    assert (details["root"], details["step"], details["line"]) == (True, None, None)
    json.dumps(details)


def test_details_have_the_line_that_xla_prints(compiler, proto):
    line = node_details(proto(FUSED), "y", compiler=compiler)["line"]
    assert line == "%y = f32[8,4]{1,0} add(%x, %x)"


def test_details_of_a_scheduled_module_have_the_step(compiler, proto):
    scheduled = schedule(
        proto(entry("ROOT p = f32[] parameter(0)", header="HloModule m, is_scheduled=true")), compiler=compiler
    )
    assert node_details(scheduled.proto, "p")["step"] == 0


def test_every_instruction_of_resnet_has_details(proto):
    data = proto(RESNET.read_bytes())
    convolution = next(
        item.name for c in decode_module(data).computations for item in c.instructions if item.opcode == "convolution"
    )
    window = node_details(data, convolution)["attributes"]["window"]["dimensions"][0]
    assert (window["size"], window["stride"]) == (7, 2)


def test_an_unknown_node_is_an_input_error(proto):
    with pytest.raises(InputError) as caught:
        node_details(proto(FUSED), "nobody")
    assert caught.value.code == "no-such-node"
