"""Bytes of a user's file -> an HLO module that XLA has parsed."""

from __future__ import annotations

import importlib.metadata
import re
import zlib
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from accelsim.errors import CompilerError, InputError
from accelsim.readers.flops import FlopCounter
from accelsim.xla.compiler import Compiler
from accelsim.xla.schema import (
    TUPLE,
    HloModuleProto,
    HloProto,
    HloSnapshot,
    decode_module,
    encode_module,
    repair_strings,
)
from accelsim.xla.shape import array_bytes, leaves, same_shape, shape_text

DEFAULT_LIMIT_BYTES = 64 * 10**6
MAX_INT64 = 2**63 - 1

_GZIP = b"\x1f\x8b"
_MLIR_BYTECODE = b"ML\xefR"
_ARCHIVES = {
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ": "xz data",
}
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
# Unclosed ones match up to where they must end, so that no text makes the search quadratic.
_QUOTED_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?|//[^\n]*|/\*(?:.*?\*/|.*)', re.DOTALL)
_MLIR_WORDS = re.compile(r"\bfunc\.func\b|\bbuiltin\.module\b|\bstablehlo\.|^\s*module\b(?=[^\n]*(?:@|attributes))")
_PLACE = re.compile(r"(?m)^was parsing (\d+):(\d+): error: (.*)$")
_MLIR_PLACE = re.compile(r"(?m)(?:^|\s)-:(\d+):(\d+): error: (.*)$")
_TILED = 3  # OpSharding.OTHER
_NO_CAUSE = "Syntax error when trying to parse the text as a HloModule:"
_HEADER_COUNTS = re.compile(r"\b(replica_count|num_partitions)=(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedModule:
    """An HLO module as XLA's parser understood it."""

    proto: bytes  # serialized HloModuleProto
    text: str  # as XLA prints it, large constants elided
    name: str
    entry: str  # name of the entry computation
    format: str  # "hlo-text", "hlo-proto", "stablehlo-text" or "stablehlo-bytecode"
    computations: int
    instructions: int  # of all computations
    parameters: int  # of the entry computation
    notes: tuple[str, ...] = ()  # what was assumed or changed, for people

    @property
    def summary(self) -> dict[str, Any]:
        """The counts and names as a JSON object."""
        return {
            "name": self.name,
            "entry": self.entry,
            "format": self.format,
            "computations": self.computations,
            "instructions": self.instructions,
            "parameters": self.parameters,
            "notes": list(self.notes),
        }


def parse(data: bytes, *, compiler: Compiler, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> ParsedModule:
    """Parse HLO text, a serialized `HloModuleProto` or `HloProto`, or StableHLO; each may be compressed with gzip.

    Raises:
        InputError: the bytes are no such module, or one that nothing can be computed for.
        CompilerError: no compiler process was free (kind ``busy``).
    """
    data = unpack(data, limit_bytes=limit_bytes)
    kind = sniff(data)
    notes: list[str] = []
    if kind == "hlo-proto":
        _, (proto, text) = _ask(compiler, "parse_proto", _unwrap(data), kind=kind)
    elif kind == "stablehlo-bytecode":
        _, (proto, text) = _ask(compiler, "parse_stablehlo", data, kind=kind)
    elif kind == "stablehlo-text":
        _, (proto, text) = _ask(compiler, "parse_stablehlo", _decode(data, notes).encode(), kind=kind)
    else:
        proto, text = _parse_text(_decode(data, notes), notes, compiler=compiler)
    proto, strings = repair_strings(proto)
    if strings:
        notes.append(f"{strings} strings had bytes that are not UTF-8; they were replaced by U+FFFD.")
    module = decode_module(proto)
    check(module)
    FlopCounter(module)  # refuses operations over 64 bits
    notes += _describe(module, text.decode(errors="replace"))
    entry = next(c for c in module.computations if c.id == module.entry_computation_id)
    return ParsedModule(
        proto=encode_module(module),
        text=text.decode(errors="replace"),
        name=module.name,
        entry=entry.name,
        format=kind,
        computations=len(module.computations),
        instructions=sum(len(computation.instructions) for computation in module.computations),
        parameters=sum(instruction.opcode == "parameter" for instruction in entry.instructions),
        notes=tuple(notes),
    )


def unpack(data: bytes, *, limit_bytes: int) -> bytes:
    """Undo gzip if there is any, and hold the limit without ever holding more than the limit in memory."""
    if not data:
        raise InputError("the file is empty; choose an HLO module", code="empty")
    if data.startswith(_GZIP):
        data = _gunzip(data, limit_bytes=limit_bytes)
        if not data.strip():
            raise InputError("the file is empty once decompressed; choose an HLO module", code="empty")
    if len(data) > limit_bytes:
        raise _too_large(limit_bytes)
    return data


def _too_large(limit_bytes: int) -> InputError:
    return InputError(
        f"the module is larger than the limit of {limit_bytes / 1e6:g} MB (after decompression); "
        "dump it without large constants, or raise the limit",
        code="too-large",
    )


def _gunzip(data: bytes, *, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest = data
    while rest.startswith(_GZIP):  # gzip files may be concatenated
        stream = zlib.decompressobj(wbits=31)
        try:
            while not stream.eof:
                part = stream.decompress(rest, min(1 << 20, limit_bytes - size + 1))
                rest = stream.unconsumed_tail
                size += len(part)
                if size > limit_bytes:
                    raise _too_large(limit_bytes)
                parts.append(part)
                if not part and not rest and not stream.eof:
                    raise InputError(
                        f"the gzip file is truncated: it ends after {len(data)} bytes; send it again",
                        code="gzip-broken",
                    )
        except zlib.error as error:
            raise InputError(f"the gzip file is broken ({error}); compress it again", code="gzip-broken") from error
        rest = stream.unused_data
    return b"".join(parts)


def sniff(data: bytes) -> str:
    """Say which of the formats of `ParsedModule.format` the bytes are in."""
    if data.startswith(_MLIR_BYTECODE):
        return "stablehlo-bytecode"
    for magic, name in _ARCHIVES.items():
        if data.startswith(magic):
            raise InputError(
                f"this is {name}; unpack it and send the module inside, plain or as gzip", code="unknown-format"
            )
    if not data.strip():
        raise InputError("the file has only white space; choose an HLO module", code="empty")
    if data.lstrip()[:9] != b"HloModule" and (_CONTROL.search(data) or not _is_utf8(data)):
        return "hlo-proto"
    code = _without_strings(data.decode(errors="replace"))
    if not _has_header(code) and _MLIR_WORDS.search(code):
        return "stablehlo-text"
    return "hlo-text"


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decode(data: bytes, notes: list[str]) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = data.decode("utf-8-sig", errors="replace")
        line = data.count(b"\n", 0, error.start) + 1
        notes.append(f"Bytes that are not UTF-8 were replaced by U+FFFD, first in line {line}.")
    return text


def _unwrap(data: bytes) -> bytes:
    """The `HloModuleProto` in a serialized HloModuleProto, HloProto or HloSnapshot."""
    for message, path in ((HloProto, ("hlo_module",)), (HloSnapshot, ("hlo", "hlo_module")), (HloModuleProto, ())):
        module = message()
        try:
            module.ParseFromString(data)
        except DecodeError:
            continue
        for name in path:
            module = getattr(module, name)
        # The messages share field numbers, so each kind may decode as another; only the right one has opcodes.
        if any(instruction.opcode for computation in module.computations for instruction in computation.instructions):
            unwrapped: bytes = module.SerializeToString()
            return unwrapped
    raise InputError(
        "these bytes are neither text nor a complete serialized HloModuleProto, HloProto or StableHLO artifact; "
        "the file is truncated or something else",
        code="unknown-format",
    )


def _without_strings(text: str) -> str:
    """The text with quoted strings and comments blanked, position for position."""
    return _QUOTED_OR_COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _has_header(code: str) -> bool:
    return re.match(r"\s*HloModule\b", code) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repair:
    """Text that other tool chains write and XLA's parser refuses, and what replaces it."""

    complaint: str  # in XLA's message
    pattern: re.Pattern[str]
    replacement: str
    note: str


_REPAIRS = (
    _Repair(
        complaint="API_VERSION_UNSPECIFIED",
        pattern=re.compile(r"\bapi_version=API_VERSION_UNSPECIFIED\b"),
        replacement="api_version=API_VERSION_ORIGINAL",
        note="custom calls had api_version=API_VERSION_UNSPECIFIED, which XLA's parser refuses; "
        "read as API_VERSION_ORIGINAL, XLA's default",
    ),
    _Repair(
        complaint="async_group_id",
        pattern=re.compile(r",\s*async_group_id=-?\d+"),
        replacement="",
        note="asynchronous operations had the attribute async_group_id, which XLA no longer knows; dropped",
    ),
)


def _parse_text(text: str, notes: list[str], *, compiler: Compiler) -> tuple[bytes, bytes]:
    """Parse HLO text; repair what XLA's parser refuses, once for each kind of repair and only after it refused."""
    code = _without_strings(text)
    if not _has_header(code):
        notes.append("The text has no HloModule header; XLA named the module itself.")
    if not re.search(r"(?m)^[ \t]*ENTRY\b", code):
        notes.append("No computation is marked ENTRY: the last one is the entry, as XLA takes it.")
    left = list(_REPAIRS)
    while True:
        try:
            _, (proto, printed) = compiler.call("parse_text", text.encode())
            return proto, printed
        except CompilerError as error:
            repair = next((r for r in left if r.complaint in error.message and error.kind == "refused"), None)
            if repair is None:
                raise _input_error(error, kind="hlo-text", text=text) from error
            left.remove(repair)
            text, count = _repair(text, repair)
            if count == 0:
                raise _input_error(error, kind="hlo-text", text=text) from error
            notes.append(f"Normalised {count} times: {repair.note}.")


def _repair(text: str, repair: _Repair) -> tuple[str, int]:
    """Replace outside of strings and comments; return the text and how often."""
    parts: list[str] = []
    count = 0
    end = 0
    for skipped in (*_QUOTED_OR_COMMENT.finditer(text), None):
        start = skipped.start() if skipped else len(text)
        part, found = repair.pattern.subn(repair.replacement, text[end:start])
        parts += [part, skipped[0] if skipped else ""]
        count += found
        end = skipped.end() if skipped else start
    return "".join(parts), count


def _ask(compiler: Compiler, request: str, payload: bytes, *, kind: str) -> tuple[dict[str, Any], list[bytes]]:
    try:
        return compiler.call(request, payload)
    except CompilerError as error:
        raise _input_error(error, kind=kind) from error


def _input_error(error: CompilerError, *, kind: str, text: str | None = None) -> Exception:
    """The user's error that a compiler's error stands for."""
    if error.kind == "busy":
        return error
    if error.kind != "refused":
        code = {"crashed": "parser-crashed", "timeout": "parser-timeout", "memory": "parser-memory"}[error.kind]
        return InputError(
            f"XLA's parser gave up on this module: {error.message}. The module is not valid; nothing was stored",
            code=code,
        )
    version = importlib.metadata.version("jaxlib")
    place = _MLIR_PLACE if kind.startswith("stablehlo") else _PLACE
    found = [match for match in place.finditer(error.message)]
    # XLA first tries an operand as a nested instruction; what it says about that attempt hides the cause.
    causes = [match for match in found if not match[3].startswith("cannot parse as an instruction name")] or found
    code = {"hlo-text": "hlo-syntax", "hlo-proto": "proto-syntax"}.get(kind, "stablehlo-syntax")
    if not causes:
        words = " ".join(error.message.partition(_NO_CAUSE)[2 if _NO_CAUSE in error.message else 0].split())[:500]
        words = words or "it names no place and no cause; a negative dimension or a tuple over 64 bits does that"
        return InputError(f"XLA's parser (jaxlib {version}) refuses this module: {words}", code=code)
    line, column, cause = int(causes[0][1]), int(causes[0][2]), causes[0][3].strip().rstrip(":")
    message = f"XLA's parser (jaxlib {version}) refuses line {line}, column {column}: {cause}"
    if text is not None:
        lines = text.rstrip().splitlines()
        if line >= len(lines) and not text.rstrip().endswith("}"):
            message += "; the text ends there, so the file may be truncated"
        if not _has_header(_without_strings(text)):
            message += "; the file does not begin with HloModule, so it may not be an HLO module"
    return InputError(message, code=code, line=line or None, column=column or None)


def check(module: Any) -> None:
    """Refuse what XLA's parser lets through although nothing can be computed for it.

    Raises:
        InputError: a shape over 64 bits, or operands that do not fit the instruction or computation they go to.
    """
    parameters = {
        computation.id: sorted(
            (item for item in computation.instructions if item.opcode == "parameter"),
            key=lambda item: item.parameter_number,
        )
        for computation in module.computations
    }
    total = 0
    for computation in module.computations:
        by_id = {item.id: item for item in computation.instructions}
        for item in computation.instructions:
            for _, leaf in leaves(item.shape):
                if any(dimension < 0 for dimension in leaf.dimensions):  # ? in the text
                    raise InputError(
                        f"instruction {item.name} in {computation.name} has a dimension without bound; "
                        "give it a size, or a bound as in f32[<=8]",
                        code="shape-unbounded",
                    )
                size = array_bytes(leaf)
                total += size
                if size > MAX_INT64:
                    raise InputError(
                        f"instruction {item.name} in {computation.name} has the shape {shape_text(leaf)} "
                        f"of {size} bytes, which is over 64 bits; use sizes that a machine can hold",
                        code="shape-overflow",
                    )
            operands = [by_id[number] for number in item.operand_ids]
            problem = _misfit(item, operands, [parameters[number] for number in item.called_computation_ids])
            if problem:
                raise InputError(f"instruction {item.name} in {computation.name}: {problem}", code="hlo-invalid")
    if total > MAX_INT64:
        raise InputError(
            f"the arrays of this module have {total} bytes together, which is over 64 bits", code="shape-overflow"
        )


def _misfit(item: Any, operands: list[Any], called: list[list[Any]]) -> str:
    """What is wrong between an instruction, its operands and the parameters of the computations it calls, or ``""``."""
    opcode = item.opcode
    if opcode == "get-tuple-element":
        shape = operands[0].shape
        if shape.element_type != TUPLE or not 0 <= item.tuple_index < len(shape.tuple_shapes):
            return f"element {item.tuple_index} of {operands[0].name} is taken, which is {shape_text(shape)}"
        if not same_shape(item.shape, shape.tuple_shapes[item.tuple_index]):
            element = shape_text(shape.tuple_shapes[item.tuple_index])
            return f"its shape is {shape_text(item.shape)}, but that element of {operands[0].name} is {element}"
    elif opcode == "tuple":
        if len(item.shape.tuple_shapes) != len(operands):
            return f"a tuple of {len(operands)} operands has the shape {shape_text(item.shape)}"
        for number, operand in enumerate(operands):
            if not same_shape(operand.shape, item.shape.tuple_shapes[number]):
                return f"operand {operand.name} is {shape_text(operand.shape)}, which does not fit its tuple"
    elif opcode in ("call", "fusion"):
        return _arguments(operands, called[0])
    elif opcode == "while":
        return next((problem for target in called if (problem := _arguments(operands, target))), "")
    elif opcode == "conditional":
        if len(called) != len(operands) - 1:
            return f"{len(called)} branches, but {len(operands) - 1} operands for them"
        for operand, target in zip(operands[1:], called, strict=True):
            if problem := _arguments([operand], target):
                return problem
    elif opcode == "dot":
        return _dot_misfit(item.dot_dimension_numbers, operands)
    elif opcode in ("cholesky", "triangular-solve"):
        if any(len(operand.shape.dimensions) < 2 for operand in operands):
            return f"{opcode} of {shape_text(operands[0].shape)}, which is no matrix"
    if item.HasField("convolution_dimension_numbers"):
        return _convolution_misfit(item, operands)
    return ""


def _dot_misfit(numbers: Any, operands: list[Any]) -> str:
    for operand, dimensions in (
        (operands[0], (*numbers.lhs_contracting_dimensions, *numbers.lhs_batch_dimensions)),
        (operands[1], (*numbers.rhs_contracting_dimensions, *numbers.rhs_batch_dimensions)),
    ):
        if any(not 0 <= number < len(operand.shape.dimensions) for number in dimensions):
            return f"{operand.name} is {shape_text(operand.shape)}, which has not all of the dimensions {dimensions}"
    return ""


def _convolution_misfit(item: Any, operands: list[Any]) -> str:
    numbers = item.convolution_dimension_numbers
    output = item.shape.tuple_shapes[0] if item.shape.element_type == TUPLE else item.shape
    spatial = (numbers.input_spatial_dimensions, numbers.kernel_spatial_dimensions, numbers.output_spatial_dimensions)
    if len(operands) < 2 or any(len(dimensions) != len(item.window.dimensions) for dimensions in spatial):
        return f"a window of {len(item.window.dimensions)} dimensions does not fit its dim_labels"
    for shape, dimensions in (
        (operands[0].shape, (numbers.input_batch_dimension, numbers.input_feature_dimension, *spatial[0])),
        (
            operands[1].shape,
            (numbers.kernel_input_feature_dimension, numbers.kernel_output_feature_dimension, *spatial[1]),
        ),
        (output, (numbers.output_batch_dimension, numbers.output_feature_dimension, *spatial[2])),
    ):
        if sorted(dimensions) != list(range(len(shape.dimensions))):
            return f"{shape_text(shape)} does not have the dimensions of its dim_labels"
    return ""


def _arguments(operands: list[Any], parameters: list[Any]) -> str:
    if len(operands) != len(parameters):
        return f"{len(operands)} operands go to a computation with {len(parameters)} parameters"
    for operand, parameter in zip(operands, parameters, strict=True):
        if not same_shape(operand.shape, parameter.shape):
            return (
                f"operand {operand.name} is {shape_text(operand.shape)}, "
                f"but parameter {parameter.name} is {shape_text(parameter.shape)}"
            )
    return ""


def _describe(module: Any, text: str) -> list[str]:
    """Notes on what the module is one part of."""
    notes = []
    header = text.partition("\n")[0]
    counts = {name: int(count) for name, count in _HEADER_COUNTS.findall(header)}
    devices = module.device_assignment
    parts = (
        ("partitions", max(counts.get("num_partitions", 1), devices.computation_count)),
        ("replicas", max(counts.get("replica_count", 1), devices.replica_count)),
    )
    many = " and ".join(f"{count} {name}" for name, count in parts if count > 1)
    if many:
        notes.append(f"The program runs on {many}; what is shown and mapped is one of them.")
    if any(_is_tiled(item.sharding) for computation in module.computations for item in computation.instructions):
        notes.append("Sharding annotations are ignored: the shapes are taken as they are written.")
    return notes


def _is_tiled(sharding: Any) -> bool:
    """Whether a sharding splits an array, rather than place or replicate it."""
    return any(part.type == _TILED for part in (sharding, *sharding.tuple_shardings))
