"""The graph document: what the viewer draws of an HLO module. Columnar, version 1.

    {"version": 1, "kind": "hlo", "name": str, "entry": group index,
     "nodes":  {"id", "op", "name", "group", "shape", "bytes", "flops"},          one row an instruction
     "edges":  {"source", "target", "sourcePort", "targetPort"},                  node indices; ports are numbers
     "groups": {"id", "name", "parent", "kind", "caller"},                        parent and caller: -1 for none
     "calls":  {"node", "group"}}                                                 every call of a computation

XLA keeps instruction names unique in a module, so a node's id is its name. Edges join instructions of one computation;
``targetPort`` is the operand number, or -1 for a control dependency. A group is a computation (its kind is the opcode
of its first caller, or ``computation``), a ``scope`` of the metadata's op names, the ``parameters`` of a large
computation, or a ``block`` of neighbours in topological order. Parents come before their groups. Scopes may depend on
each other in circles; blocks of nodes do not.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from accelsim.errors import InputError
from accelsim.readers.flops import FlopCounter
from accelsim.xla.compiler import Compiler
from accelsim.xla.schema import decode_module
from accelsim.xla.shape import byte_size, shape_text

VERSION = 1
# A group with more children than that is divided.
GROUP_LIMIT = 200
_MIN_PARAMETERS = 8
# Scopes below that depth are not told apart, so that no op names make the division quadratic.
_SCOPE_DEPTH = 16
_DIVISIONS = frozenset({"scope", "parameters", "block"})
# Fields of an instruction that node_details shows elsewhere, or that are bookkeeping.
_NOT_ATTRIBUTES = frozenset(
    {
        "name",
        "opcode",
        "shape",
        "metadata",
        "literal",
        "id",
        "operand_ids",
        "called_computation_ids",
        "control_predecessor_ids",
    }
)


@dataclass(slots=True)
class _Groups:
    id: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    caller: list[int] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def add(self, *, name: str, parent: int, kind: str, caller: int = -1) -> int:
        # A computation's name is unique in its module; with its callers' names before it, ids of deep calls grow long.
        identity = f"{self.id[parent]}/{name}" if kind in _DIVISIONS else name
        while identity in self.used:
            identity += f"#{len(self.id)}"
        self.used.add(identity)
        self.id.append(identity)
        self.name.append(name)
        self.parent.append(parent)
        self.kind.append(kind)
        self.caller.append(caller)
        return len(self.id) - 1

    def columns(self) -> dict[str, list[Any]]:
        return {"id": self.id, "name": self.name, "parent": self.parent, "kind": self.kind, "caller": self.caller}


def graph_document(proto: bytes) -> dict[str, Any]:
    """Describe a serialized `HloModuleProto` for the viewer."""
    module = decode_module(proto)
    computations = list(module.computations)
    items: list[Any] = []  # the instructions of all computations
    first: dict[int, int] = {}  # computation id -> node index of its first instruction
    for computation in computations:
        first[computation.id] = len(items)
        items.extend(computation.instructions)
    by_id = {computation.id: computation for computation in computations}
    calls = [
        (node, number) for node, item in enumerate(items) for number in item.called_computation_ids if number in by_id
    ]
    counter = FlopCounter(module)
    group, groups, group_of = _group(items, by_id=by_id, first=first, calls=calls, entry=module.entry_computation_id)
    return {
        "version": VERSION,
        "kind": "hlo",
        "name": module.name,
        "entry": group_of[module.entry_computation_id],
        "nodes": {
            "id": [item.name for item in items],
            "op": [item.opcode for item in items],
            "name": [item.name for item in items],
            "group": group,
            "shape": [shape_text(item.shape) for item in items],
            "bytes": [byte_size(item.shape) for item in items],
            "flops": [counter.instruction(c.id, item.id) for c in computations for item in c.instructions],
        },
        "edges": _edges(computations),
        "groups": groups.columns(),
        "calls": {"node": [node for node, _ in calls], "group": [group_of[number] for _, number in calls]},
    }


def _edges(computations: list[Any]) -> dict[str, list[int]]:
    source: list[int] = []
    target: list[int] = []
    port: list[int] = []
    start = 0
    for computation in computations:
        index = {item.id: start + number for number, item in enumerate(computation.instructions)}
        for item in computation.instructions:
            node = index[item.id]
            for number, operand in enumerate(item.operand_ids):
                source.append(index[operand])
                target.append(node)
                port.append(number)
            for operand in item.control_predecessor_ids:
                source.append(index[operand])
                target.append(node)
                port.append(-1)
        start += len(index)
    return {"source": source, "target": target, "sourcePort": [0] * len(source), "targetPort": port}


def _group(
    items: list[Any], *, by_id: dict[int, Any], first: dict[int, int], calls: list[tuple[int, int]], entry: int
) -> tuple[list[int], _Groups, dict[int, int]]:
    """Nest computations under their first caller, and divide the large ones.

    Returns: the group of each node, the groups, and the group of each computation id.
    """
    groups = _Groups()
    group = [-1] * len(items)
    group_of: dict[int, int] = {}
    called_by: dict[int, list[int]] = {}
    for node, number in calls:
        called_by.setdefault(node, []).append(number)
    roots = [entry, *(number for number in by_id if number != entry and number not in {n for _, n in calls})]
    waiting = deque((number, -1) for number in roots)
    while waiting:
        number, caller = waiting.popleft()
        if number in group_of:
            continue
        computation = by_id[number]
        here = groups.add(
            name=computation.name,
            parent=group[caller] if caller >= 0 else -1,
            kind=items[caller].opcode if caller >= 0 else "computation",
            caller=caller,
        )
        group_of[number] = here
        nodes = range(first[number], first[number] + len(computation.instructions))
        _divide(list(nodes), items, group=group, groups=groups, parent=here)
        waiting.extend((called, node) for node in nodes for called in called_by.get(node, ()))
    return group, groups, group_of


# A child of a group to be: its name, its kind, and its nodes; a single node has the kind "node".
_Child = tuple[str, str, list[int]]


def _divide(nodes: list[int], items: list[Any], *, group: list[int], groups: _Groups, parent: int) -> None:
    """Put nodes into a group, in sub-groups where there are more than `GROUP_LIMIT` of them."""
    waiting: list[tuple[list[int], int, int]] = [(nodes, parent, 0)]
    scopes: dict[int, tuple[str, ...]] = {}
    while waiting:
        nodes, parent, depth = waiting.pop()
        if len(nodes) <= GROUP_LIMIT:
            for node in nodes:
                group[node] = parent
            continue
        if not scopes:
            scopes = {node: _scope(items[node]) for node in nodes}
        children, depth = _children(nodes, items, scopes=scopes, depth=depth)
        for name, kind, members in _limited(children):
            if kind == "node":
                group[members[0]] = parent
            else:
                inside = groups.add(name=name, parent=parent, kind=kind)
                # A block is divided by the same scopes as the group that it is a part of.
                waiting.append((members, inside, depth if kind == "block" else depth + 1))


def _scope(item: Any) -> tuple[str, ...]:
    """The path of an instruction's op name without the operation itself: ``jit(f)/layer3/dot`` -> (jit(f), layer3)."""
    return tuple(item.metadata.op_name.split("/", _SCOPE_DEPTH)[:-1])


def _children(
    nodes: list[int], items: list[Any], *, scopes: dict[int, tuple[str, ...]], depth: int
) -> tuple[list[_Child], int]:
    """Sort nodes into the parameters, the scopes at the first depth that tells them apart, and single nodes."""
    parameters = [node for node in nodes if items[node].opcode == "parameter"]
    apart = len(nodes) > len(parameters) >= _MIN_PARAMETERS
    rest = [node for node in nodes if items[node].opcode != "parameter"] if apart else nodes
    deepest = max(len(scopes[node]) for node in rest)
    while depth < deepest and len({scopes[node][depth : depth + 1] for node in rest}) == 1:
        depth += 1
    members: dict[str, list[int]] = {}
    for node in rest:
        path = scopes[node]
        members.setdefault(path[depth] if depth < len(path) else "", []).append(node)
    children: list[_Child] = [("parameters", "parameters", parameters)] if apart else []
    for name, inside in members.items():
        if name and len(inside) > 1:
            children.append((name, "scope", inside))
        else:
            children.extend(("", "node", [node]) for node in inside)
    children.sort(key=lambda child: child[2][0])
    return children, depth


def _limited(children: list[_Child]) -> list[_Child]:
    """Gather neighbours in blocks if there are more than `GROUP_LIMIT` children; large blocks are divided in turn."""
    if len(children) <= GROUP_LIMIT:
        return children
    size = GROUP_LIMIT
    while size * GROUP_LIMIT < len(children):
        size *= GROUP_LIMIT
    blocks: list[_Child] = []
    for start in range(0, len(children), size):
        part = children[start : start + size]
        blocks.append((f"block {len(blocks) + 1}", "block", sorted(node for _, _, inside in part for node in inside)))
    return blocks


def node_details(proto: bytes, name: str, *, compiler: Compiler | None = None) -> dict[str, Any]:
    """Everything about one instruction, by its name.

    With a compiler, ``line`` is the instruction as XLA prints it.

    Raises:
        InputError: there is no such instruction.
    """
    module = decode_module(proto)
    for computation in module.computations:
        for item in computation.instructions:
            if item.name == name:
                return _details(module, computation, item, proto=proto, compiler=compiler)
    raise InputError(f"there is no instruction {name} in {module.name}", code="no-such-node")


def _details(module: Any, computation: Any, item: Any, *, proto: bytes, compiler: Compiler | None) -> dict[str, Any]:
    by_id = {other.id: other for other in module.computations}
    local = {other.id: other for other in computation.instructions}
    operands = [local[number] for number in item.operand_ids]
    line = None
    if compiler is not None:
        line = compiler.call("instruction_text", proto, item.name.encode())[1][0].decode()
    scheduled = computation.id in module.schedule.sequences
    sequence = list(module.schedule.sequences[computation.id].instruction_ids) if scheduled else []
    return {
        "name": item.name,
        "op": item.opcode,
        "computation": computation.name,
        "root": item.id == computation.root_id,
        "shape": shape_text(item.shape, limit=20_000),
        "layout": _layout(item.shape),
        "bytes": byte_size(item.shape),
        "flops": FlopCounter(module).instruction(computation.id, item.id),
        "step": sequence.index(item.id) if item.id in sequence else None,
        "operands": [{"name": other.name, "op": other.opcode, "shape": shape_text(other.shape)} for other in operands],
        "users": [
            {"name": other.name, "op": other.opcode, "shape": shape_text(other.shape)}
            for other in computation.instructions
            if item.id in other.operand_ids
        ],
        "calls": [by_id[number].name for number in item.called_computation_ids if number in by_id],
        "attributes": _attributes(item, local),
        "metadata": _plain(item.metadata),
        "line": line,
    }


def _layout(shape: Any) -> dict[str, Any] | None:
    """Minor-to-major order, tiles and memory space of an array; None for tuples."""
    if not shape.HasField("layout"):
        return None
    return {
        "minor_to_major": list(shape.layout.minor_to_major),
        "tiles": [list(tile.dimensions) for tile in shape.layout.tiles],
        "memory_space": shape.layout.memory_space,
    }


def _attributes(item: Any, local: dict[int, Any]) -> dict[str, Any]:
    """The set fields of an instruction that are its own, by their names in XLA's proto."""
    found = {key: value for key, value in _plain(item).items() if key not in _NOT_ATTRIBUTES}
    # XLA writes these for every instruction; their defaults say nothing.
    for key, default in (("feature_group_count", 1), ("batch_group_count", 1)):
        if found.get(key) == default:
            del found[key]
    if not any(item.precision_config.operand_precision) and not item.precision_config.algorithm:
        found.pop("precision_config", None)
    if item.control_predecessor_ids:
        found["control_predecessors"] = [local[number].name for number in item.control_predecessor_ids]
    return found


def _plain(message: Any) -> dict[str, Any]:
    """The fields of a message that say something, as JSON values; integers stay integers."""
    found: dict[str, Any] = {}
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry:
            value = dict(value)
        elif descriptor.is_repeated:
            value = [_plain_value(entry) for entry in value]
        else:
            value = _plain_value(value)
        if value not in ("", False, [], {}):
            found[descriptor.name] = value
    return found


def _plain_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return _plain(value) if hasattr(value, "ListFields") else value
