"""The part of XLA's protobuf schema that we read and write, built at import without generated code.

Field numbers are those of the installed jaxlib. Fields that are not listed here survive a round trip as unknown fields.
Enumerations are plain integers; `ELEMENT_TYPES` names those of `ShapeProto.element_type`.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from accelsim.errors import InputError

# One message a block, one field a line: number, name, type. "*" after a type: repeated. "map K V": a map.
_SCHEMA = """
PaddingConfig.PaddingConfigDimension
  1 edge_padding_low int64
  2 edge_padding_high int64
  3 interior_padding int64
PaddingConfig
  1 dimensions PaddingConfig.PaddingConfigDimension*
TileProto
  1 dimensions int64*
SplitConfigProto
  1 dimension int64
  2 split_indices int64*
LayoutProto
  1 minor_to_major int64*
  6 tiles TileProto*
  7 element_size_in_bits int64
  8 memory_space int64
  9 dim_level_types int32*
  10 physical_shape ShapeProto
  11 index_primitive_type int32
  12 pointer_primitive_type int32
  15 dynamic_shape_metadata_prefix_bytes int64
  16 tail_padding_alignment_in_elements int64
  17 split_configs SplitConfigProto*
ShapeProto
  2 element_type int32
  3 dimensions int64*
  4 tuple_shapes ShapeProto*
  5 layout LayoutProto
  6 is_dynamic_dimension bool*
ProgramShapeProto
  1 parameters ShapeProto*
  2 result ShapeProto
  3 parameter_names string*
OpMetadata
  1 op_type string
  2 op_name string
  3 source_file string
  4 source_line int32
  12 deduplicated_name string
  15 stack_frame_id int32
  16 scheduling_name string
  17 source_end_line int32
  18 source_column int32
  19 source_end_column int32
DeviceAssignmentProto.ComputationDevice
  1 replica_device_ids int64*
DeviceAssignmentProto
  1 replica_count int32
  2 computation_count int32
  3 computation_devices DeviceAssignmentProto.ComputationDevice*
LiteralProto
  1 shape ShapeProto
  2 preds bool*
  3 u8s bytes
  4 s32s int32*
  5 s64s int64*
  6 u32s uint32*
  7 u64s uint64*
  8 f32s float*
  9 f64s double*
  10 tuple_literals LiteralProto*
  11 f16s bytes
  13 bf16s bytes
  15 s8s bytes
  16 u16s bytes
  17 s16s bytes
WindowDimension
  1 size int64
  2 stride int64
  3 padding_low int64
  4 padding_high int64
  5 window_dilation int64
  6 base_dilation int64
  7 window_reversal bool
Window
  1 dimensions WindowDimension*
GatherDimensionNumbers
  1 offset_dims int64*
  2 collapsed_slice_dims int64*
  3 start_index_map int64*
  4 index_vector_dim int64
  5 operand_batching_dims int64*
  6 start_indices_batching_dims int64*
ScatterDimensionNumbers
  1 update_window_dims int64*
  2 inserted_window_dims int64*
  3 scatter_dims_to_operand_dims int64*
  4 index_vector_dim int64
  5 input_batching_dims int64*
  6 scatter_indices_batching_dims int64*
ConvolutionDimensionNumbers
  3 kernel_input_feature_dimension int64
  4 kernel_output_feature_dimension int64
  6 kernel_spatial_dimensions int64*
  7 input_batch_dimension int64
  8 input_feature_dimension int64
  9 output_batch_dimension int64
  10 output_feature_dimension int64
  11 input_spatial_dimensions int64*
  12 output_spatial_dimensions int64*
DotDimensionNumbers
  1 lhs_contracting_dimensions int64*
  2 rhs_contracting_dimensions int64*
  3 lhs_batch_dimensions int64*
  4 rhs_batch_dimensions int64*
RaggedDotDimensionNumbers
  1 dot_dimension_numbers DotDimensionNumbers
  2 lhs_ragged_dimensions int64*
  3 rhs_group_dimensions int64*
TriangularSolveOptions
  1 left_side bool
  2 lower bool
  3 unit_diagonal bool
  4 transpose_a int32
CholeskyOptions
  1 lower bool
FrontendAttributes
  1 map map string string
OpSharding
  1 type int32
  3 tile_assignment_dimensions int64*
  4 tile_assignment_devices int64*
  5 tuple_shardings OpSharding*
  6 replicate_on_last_tile_dim bool
ReplicaGroup
  1 replica_ids int64*
SourceTarget
  1 source int64
  2 target int64
PrecisionConfig
  1 operand_precision int32*
  2 algorithm int32
WhileLoopBackendConfig.KnownTripCount
  1 n int64
WhileLoopBackendConfig
  1 known_trip_count WhileLoopBackendConfig.KnownTripCount
OutputOperandAliasing
  1 output_shape_index int64*
  2 operand_index int64
  3 operand_shape_index int64*
HloInstructionProto.SliceDimensions
  1 start int64
  2 limit int64
  3 stride int64
HloInstructionProto
  1 name string
  2 opcode string
  3 shape ShapeProto
  7 metadata OpMetadata
  8 literal LiteralProto
  9 parameter_number int64
  11 fusion_kind string
  13 tuple_index int64
  14 dimensions int64*
  15 window Window
  16 convolution_dimension_numbers ConvolutionDimensionNumbers
  17 slice_dimensions HloInstructionProto.SliceDimensions*
  18 exponent_bits int32
  19 mantissa_bits int32
  20 dynamic_slice_sizes int64*
  21 padding_config PaddingConfig
  22 outfeed_config bytes
  23 distribution int32
  24 epsilon float
  25 feature_index int64
  26 channel_id int64
  27 infeed_config bytes
  28 custom_call_target string
  29 outfeed_shape ShapeProto
  30 dot_dimension_numbers DotDimensionNumbers
  31 fft_type int32
  32 fft_length int64*
  33 gather_dimension_numbers GatherDimensionNumbers
  34 gather_slice_sizes int64*
  35 id int64
  36 operand_ids int64*
  37 control_predecessor_ids int64*
  38 called_computation_ids int64*
  40 sharding OpSharding
  43 backend_config bytes
  47 is_host_transfer bool
  48 scatter_dimension_numbers ScatterDimensionNumbers
  49 replica_groups ReplicaGroup*
  50 feature_group_count int64
  51 precision_config PrecisionConfig
  52 source_target_pairs SourceTarget*
  56 constrain_layout bool
  57 operand_shapes_with_layout ShapeProto*
  58 batch_group_count int64
  59 triangular_solve_options TriangularSolveOptions
  60 is_stable bool
  62 cholesky_options CholeskyOptions
  63 comparison_direction string
  65 custom_call_has_side_effect bool
  66 delta int64
  67 indices_are_sorted bool
  68 frontend_attributes FrontendAttributes
  69 unique_indices bool
  70 rng_algorithm int32
  71 use_global_device_ids bool
  72 comparison_type string
  73 is_cross_program_prefetch bool
  74 output_operand_aliasing OutputOperandAliasing*
  75 padding_type int32
  76 custom_call_schedule int32
  77 custom_call_api_version int32
  79 async_execution_thread string
  80 cross_program_prefetch_index int32
  81 k int64
  85 largest bool
  89 is_composite bool
  90 ragged_dot_dimension_numbers RaggedDotDimensionNumbers
  97 conv_kind int32
HloComputationProto
  1 name string
  2 instructions HloInstructionProto*
  4 program_shape ProgramShapeProto
  5 id int64
  6 root_id int64
  7 is_fusion_computation bool
  8 execution_thread string
HloScheduleProto.InstructionSequence
  1 instruction_ids int64*
HloScheduleProto
  1 sequences map int64 HloScheduleProto.InstructionSequence
HloInputOutputAliasProto.AliasEntryProto
  1 output_shape_index int64*
  2 parameter_number int64
  3 parameter_shape_index int64*
  4 kind int32
HloInputOutputAliasProto
  1 entries HloInputOutputAliasProto.AliasEntryProto*
HloBufferDonorProto.BufferDonorEntryProto
  1 parameter_number int64
  2 parameter_shape_index int64*
HloBufferDonorProto
  1 entries HloBufferDonorProto.BufferDonorEntryProto*
CrossProgramPrefetch
  1 parameter int64
  2 index int64*
  3 offset int64
StackFrameIndexProto.FileLocation
  1 file_name_id int32
  2 function_name_id int32
  3 line int32
  4 column int32
  5 end_line int32
  6 end_column int32
StackFrameIndexProto.StackFrame
  1 file_location_id int32
  2 parent_frame_id int32
StackFrameIndexProto
  1 file_names string*
  2 function_names string*
  3 file_locations StackFrameIndexProto.FileLocation*
  4 stack_frames StackFrameIndexProto.StackFrame*
HloModuleProto
  1 name string
  2 entry_computation_name string
  3 computations HloComputationProto*
  4 host_program_shape ProgramShapeProto
  5 id int64
  6 entry_computation_id int64
  7 schedule HloScheduleProto
  8 input_output_alias HloInputOutputAliasProto
  10 cross_program_prefetches CrossProgramPrefetch*
  11 is_dynamic bool
  12 spmd_output_sharding OpSharding
  14 spmd_parameters_shardings OpSharding*
  15 device_assignment DeviceAssignmentProto
  16 use_auto_spmd_partitioning bool
  17 stack_frame_index StackFrameIndexProto
  18 buffer_donor HloBufferDonorProto
  19 frontend_attributes FrontendAttributes
  21 device_type string
HloProto
  1 hlo_module HloModuleProto
HloSnapshot
  1 hlo HloProto
"""

# ShapeProto.element_type -> (name as in HLO text, bits of one element). Types without a size have 0.
ELEMENT_TYPES: dict[int, tuple[str, int]] = {
    1: ("pred", 8),
    2: ("s8", 8),
    3: ("s16", 16),
    4: ("s32", 32),
    5: ("s64", 64),
    6: ("u8", 8),
    7: ("u16", 16),
    8: ("u32", 32),
    9: ("u64", 64),
    10: ("f16", 16),
    11: ("f32", 32),
    12: ("f64", 64),
    13: ("tuple", 0),
    14: ("opaque", 0),
    15: ("c64", 64),
    16: ("bf16", 16),
    17: ("token", 0),
    18: ("c128", 128),
    19: ("f8e5m2", 8),
    20: ("f8e4m3fn", 8),
    21: ("s4", 4),
    22: ("u4", 4),
    23: ("f8e4m3b11fnuz", 8),
    24: ("f8e5m2fnuz", 8),
    25: ("f8e4m3fnuz", 8),
    26: ("s2", 2),
    27: ("u2", 2),
    28: ("f8e4m3", 8),
    29: ("f8e3m4", 8),
    30: ("s1", 1),
    31: ("u1", 1),
    32: ("f4e2m1fn", 4),
    33: ("f8e8m0fnu", 8),
    34: ("b", 0),  # BUFFER: a reference, its bytes belong to another value
    35: ("f6e3m2fn", 8),
    36: ("f6e2m3fn", 8),
}
TUPLE = 13
OPAQUE = 14
TOKEN = 17

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "double": _Field.TYPE_DOUBLE,
    "float": _Field.TYPE_FLOAT,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "int32": _Field.TYPE_INT32,
    "uint32": _Field.TYPE_UINT32,
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
}


def _add_field(message: Any, *, number: int, name: str, kind: str, repeated: bool) -> None:
    field = message.field.add(name=name, number=number)
    field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".xla.{kind}"


def _build_pool(*, strict: bool) -> Any:
    """Register the messages in a new pool. Every field has presence; if strict, strings must be UTF-8 to decode."""
    file = descriptor_pb2.FileDescriptorProto(name="accelsim/hlo_subset.proto", package="xla", syntax="proto2")
    if strict:
        file.syntax = "editions"
        file.edition = descriptor_pb2.EDITION_2023
    messages: dict[str, Any] = {}

    def message(path: str) -> Any:
        if path not in messages:
            owner, _, name = path.rpartition(".")
            messages[path] = message(owner).nested_type.add(name=name) if owner else file.message_type.add(name=name)
        return messages[path]

    owner = ""
    for line in _SCHEMA.strip().splitlines():
        if not line.startswith(" "):
            owner = line
            message(owner)
            continue
        number, name, kind, *entry = line.split()
        if kind == "map":
            entry_name = f"{name.title()}Entry"
            item = message(f"{owner}.{entry_name}")
            item.options.map_entry = True
            _add_field(item, number=1, name="key", kind=entry[0], repeated=False)
            _add_field(item, number=2, name="value", kind=entry[1], repeated=False)
            kind = f"{owner}.{entry_name}*"
        base = kind.removesuffix("*")
        _add_field(message(owner), number=int(number), name=name, kind=base, repeated=kind.endswith("*"))
    # A pool of our own: jax, torch or TensorFlow may have registered XLA's full schema in the default pool.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_STRICT = _build_pool(strict=True)
_LENIENT = _build_pool(strict=False)


def _message_class(name: str, *, pool: Any = _STRICT) -> Any:
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"xla.{name}"))


HloModuleProto = _message_class("HloModuleProto")
HloProto = _message_class("HloProto")
HloSnapshot = _message_class("HloSnapshot")
HloComputationProto = _message_class("HloComputationProto")
HloInstructionProto = _message_class("HloInstructionProto")
ShapeProto = _message_class("ShapeProto")
LayoutProto = _message_class("LayoutProto")
WhileLoopBackendConfig = _message_class("WhileLoopBackendConfig")
_LenientModule = _message_class("HloModuleProto", pool=_LENIENT)


def decode_module(data: bytes) -> Any:
    """Decode the bytes of an `HloModuleProto`.

    Raises:
        InputError: the bytes are no such message.
    """
    module = HloModuleProto()
    try:
        module.ParseFromString(data)
    except DecodeError as error:
        raise InputError("these bytes are not a serialized HloModuleProto", code="proto-syntax") from error
    return module


def encode_module(module: Any) -> bytes:
    """Serialize a module such that equal modules give equal bytes.

    XLA numbers the modules of a process and writes maps in any order; neither says anything about the module.
    """
    module.ClearField("id")
    data: bytes = module.SerializeToString(deterministic=True)
    return data


def repair_strings(data: bytes) -> tuple[bytes, int]:
    """Replace what is not UTF-8 in the strings of a serialized `HloModuleProto`; return the bytes and how many strings.

    XLA's text format can escape any byte in a string; nothing behind the parser should have to expect that.
    """
    try:
        HloModuleProto().ParseFromString(data)
        return data, 0
    except DecodeError:
        pass
    module = _LenientModule()
    try:
        module.ParseFromString(data)
    except DecodeError as error:
        raise InputError("these bytes are not a serialized HloModuleProto", code="proto-syntax") from error
    count = 0
    messages = [module]
    while messages:
        message = messages.pop()
        for descriptor, value in message.ListFields():
            if descriptor.message_type is None:
                if descriptor.type == descriptor.TYPE_STRING:
                    count += _repair_field(message, descriptor, value)
            elif not descriptor.message_type.GetOptions().map_entry:
                messages.extend(value if descriptor.is_repeated else [value])
            elif descriptor.message_type.fields_by_name["value"].type == descriptor.TYPE_STRING:
                repaired = {_text(key): _text(text) for key, text in value.items()}
                if repaired != dict(value):
                    value.clear()
                    value.update(repaired)
                    count += 1
    return module.SerializeToString(), count


def _repair_field(message: Any, descriptor: Any, value: Any) -> int:
    """Repair one string field; how many of its strings needed it."""
    strings = list(value) if descriptor.is_repeated else [value]
    broken = sum(isinstance(text, bytes) for text in strings)
    if broken and descriptor.is_repeated:
        value[:] = [_text(text) for text in strings]
    elif broken:
        setattr(message, descriptor.name, _text(value))
    return broken


def _text(value: str | bytes) -> str:
    """A string as text: protobuf returns one that is not UTF-8 as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
