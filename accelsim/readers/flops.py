"""Floating-point operations of HLO instructions, counted as XLA's HloCostAnalysis does.

Two differences, both on purpose: transcendental functions count one each (XLA keeps them apart), and matrix
multiplications and convolutions that are custom calls of a library count like the instructions they replace.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from accelsim.errors import InputError
from accelsim.xla.schema import TUPLE
from accelsim.xla.shape import leaves

INT64_MAX = 2**63 - 1
_LARGE_KERNEL = 10**6  # kernel positions of one dimension; above, padding is not subtracted

ELEMENTWISE = frozenset(
    """
    abs acos acosh add and asin asinh atan atan2 atanh bitcast-convert cbrt ceil clamp compare complex convert cosh
    cosine count-leading-zeros divide erf exponential exponential-minus-one floor imag is-finite log log-plus-one
    logistic maximum minimum multiply negate not or popcnt power real reduce-precision remainder round-nearest-afz
    round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign sine sinh sqrt
    stochastic-convert subtract tan tanh xor
    """.split()
)
_GEMM_TARGETS = ("__onednn$matmul", "__cublas$", "__triton_gemm", "$matmul")
_FORWARD_CONVOLUTIONS = ("__cudnn$convForward", "__cudnn$convBiasActivationForward", "__cudnn$convForwardGraph")


def elements(shape: Any) -> int:
    """Elements of an array, or of the first array of a tuple."""
    if shape.element_type == TUPLE:
        arrays = leaves(shape)
        return math.prod(arrays[0][1].dimensions) if arrays else 0
    count: int = math.prod(shape.dimensions)
    return count


class FlopCounter:
    """Counts the operations of one module, callees first.

    Attributes:
        unknown: targets of the custom calls that were counted as 0, each with the number of calls.
    """

    def __init__(self, module: Any) -> None:
        self.unknown: dict[str, int] = {}
        self._instructions: dict[tuple[int, int], int] = {}
        self._computations: dict[int, int] = {}
        for computation in module.computations:  # XLA writes callees before their callers
            shapes = {item.id: item.shape for item in computation.instructions}
            total = 0
            for item in computation.instructions:
                count = self._count(item, shapes)
                if count > INT64_MAX:
                    raise InputError(
                        f"the operations of {item.name} do not fit in 64 bits: {count}", code="size-overflow"
                    )
                self._instructions[computation.id, item.id] = count
                total += count
            self._computations[computation.id] = total

    def instruction(self, computation: int, instruction: int) -> int:
        """Operations of one execution of an instruction, with those of the computations that it calls once."""
        return self._instructions[computation, instruction]

    def _called(self, item: Any) -> int:
        return sum(self._computations.get(identity, 0) for identity in item.called_computation_ids)

    def _count(self, item: Any, shapes: dict[int, Any]) -> int:
        opcode: str = item.opcode
        if opcode in ELEMENTWISE:
            return elements(item.shape)
        if opcode in ("fusion", "call", "while", "conditional", "async-start"):
            return self._called(item)
        operands = [shapes[identity] for identity in item.operand_ids]
        if opcode == "dot":
            numbers = item.dot_dimension_numbers
            width: int = math.prod(operands[0].dimensions[number] for number in numbers.lhs_contracting_dimensions)
            return 2 * elements(item.shape) * width
        if opcode == "convolution":
            return convolution_flops(item, input=operands[0], kernel=operands[1], output=item.shape)
        if opcode == "reduce":
            return self._called(item) * max(0, elements(operands[0]) - elements(item.shape))
        if opcode == "map":
            return self._called(item) * elements(item.shape)
        if opcode == "reduce-window":
            return self._called(item) * elements(item.shape) * max(0, _window_size(item) - 1)
        if opcode == "select-and-scatter":
            select, scatter = (self._computations.get(identity, 0) for identity in item.called_computation_ids[:2])
            return elements(operands[1]) * (select * max(0, _window_size(item) - 1) + scatter)
        if opcode == "scatter":
            return self._called(item) * elements(operands[len(operands) // 2 + 1])
        if opcode in ("all-reduce", "all-reduce-start"):
            return sum(elements(operand) for operand in operands)
        if opcode in ("rng", "rng-bit-generator"):
            return sum(math.prod(leaf.dimensions) for _, leaf in leaves(item.shape))
        if opcode == "sort":
            count = elements(operands[0])
            return count * max(0, count - 1).bit_length()
        if opcode == "fft":
            return 8 * elements(operands[0]) * math.prod(int(size).bit_length() - 1 for size in item.fft_length)
        if opcode == "cholesky":
            return elements(operands[0]) * int(operands[0].dimensions[-1]) // 3
        if opcode == "triangular-solve":
            return 2 * elements(operands[1]) * int(operands[0].dimensions[-1])
        if opcode == "custom-call":
            return self._count_custom_call(item, operands)
        return 0

    def _count_custom_call(self, item: Any, operands: list[Any]) -> int:
        target: str = item.custom_call_target
        if len(operands) >= 2:
            if any(part in target for part in _GEMM_TARGETS):
                width = _contraction(item.backend_config, operands[0], operands[1], item.shape)
                if width is not None:
                    return 2 * elements(item.shape) * width
            elif target in _FORWARD_CONVOLUTIONS and item.HasField("convolution_dimension_numbers"):
                output = leaves(item.shape)[0][1]
                return convolution_flops(item, input=operands[0], kernel=operands[1], output=output)
        self.unknown[target] = self.unknown.get(target, 0) + 1
        return 0


def _window_size(item: Any) -> int:
    return math.prod(int(dimension.size) for dimension in item.window.dimensions)


def convolution_flops(item: Any, *, input: Any, kernel: Any, output: Any) -> int:
    """Two operations for each product of an input element and a kernel element; padding and holes give none."""
    numbers = item.convolution_dimension_numbers
    spatial = [
        _valid_positions(
            window,
            size=input.dimensions[numbers.input_spatial_dimensions[index]],
            outputs=output.dimensions[numbers.output_spatial_dimensions[index]],
        )
        for index, window in enumerate(item.window.dimensions)
    ]
    products = (
        input.dimensions[numbers.input_feature_dimension]
        // max(1, item.feature_group_count)
        * output.dimensions[numbers.output_feature_dimension]
        * (input.dimensions[numbers.input_batch_dimension] // max(1, item.batch_group_count))
    )
    return int(2 * products * math.prod(spatial))


def _valid_positions(window: Any, *, size: int, outputs: int) -> int:
    """Pairs of an output index and a kernel index that meet an input element, in one dimension."""
    kernel, stride = int(window.size), max(1, int(window.stride))
    dilation, holes = max(1, int(window.window_dilation)), max(1, int(window.base_dilation))
    low = int(window.padding_low)
    if kernel <= 0 or size <= 0 or outputs <= 0:
        return 0
    span = (size - 1) * holes  # last input position after base dilation
    far = max(abs(low), kernel * dilation, outputs * stride, span)
    if kernel > _LARGE_KERNEL or far > 2**61:
        return kernel * outputs // holes
    shift = np.arange(kernel, dtype=np.int64) * dilation - low  # position = output index * stride + shift
    if holes == 1:
        first = np.maximum(0, -(shift // stride))
        last = np.minimum(outputs - 1, (span - shift) // stride)
        return int(np.maximum(0, last - first + 1).sum())
    if kernel * outputs > 10**7:
        return kernel * outputs // holes
    position = np.arange(outputs, dtype=np.int64)[:, None] * stride + shift
    return int(((position >= 0) & (position <= span) & (position % holes == 0)).sum())


def _contraction(config: bytes, left: Any, right: Any, result: Any) -> int | None:
    """Length of the dimensions that a library's matrix multiplication sums over, `None` if it cannot be told."""
    for numbers in _find(config, "dot_dimension_numbers"):
        try:
            dimensions = [int(number) for number in numbers.get("lhs_contracting_dimensions", [])]
            if dimensions and all(0 <= number < len(left.dimensions) for number in dimensions):
                return math.prod(int(left.dimensions[number]) for number in dimensions)
        except (AttributeError, TypeError, ValueError):
            break
    transposed = any(value is True for value in _find(config, "transpose_a"))
    rank = len(left.dimensions)
    if rank == 0 or (transposed and rank < 2):
        return None
    return int(left.dimensions[rank - 2 if transposed else rank - 1])


def read_config(config: bytes) -> Any:
    """The JSON of a backend_config, `None` if it is something else."""
    try:
        return json.loads(config) if config else None
    except (ValueError, RecursionError):
        return None


def _find(config: bytes, key: str) -> Iterator[Any]:
    """Values of a key at any depth of a backend_config."""
    stack: list[Any] = [read_config(config)]
    while stack:
        item = stack.pop()
        children: Iterable[Any] = ()
        if isinstance(item, dict):
            if key in item:
                yield item[key]
            children = item.values()
        elif isinstance(item, list):
            children = item
        stack.extend(child for child in children if isinstance(child, dict | list))
