"""Simulator, validator, bound and writers on the real modules, under memory pressure."""

from pathlib import Path

import numpy as np
import pytest

from accelsim import reference
from accelsim.bound import lower_bound
from accelsim.device import load_device
from accelsim.load import load, peak_bytes
from accelsim.mapping import COLUMNS, Mapping, validate
from accelsim.simulator import MappingBatch, Simulator
from accelsim.writers.json import mapping_document, read_mapping
from accelsim.xla import Compiler
from tests.accelsim.programs import random_mapping

FILES = sorted(Path("tests/data/hlo").glob("*.hlo.gz"))
MAPPINGS = 1000


@pytest.fixture(scope="module")
def compiler():
    with Compiler(children=1) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_the_batch_equals_the_reference_on_a_thousand_mappings_of(path, compiler):
    program = load(path.read_bytes(), compiler=compiler).program
    device = load_device("tpu-v5e", capacity_bytes=max(peak_bytes(program) // 4, 4096))
    mappings = [Mapping.all_slow(program), *distinct_mappings(program, device)]
    assert all(validate(program, device, mapping) == [] for mapping in mappings)

    simulator = Simulator(program, device)
    latencies = simulator.latencies(MappingBatch.of(program, mappings)).tolist()
    assert latencies == [reference.latency(program, simulator.costs, mapping) for mapping in mappings]
    assert 0 < lower_bound(program, device) <= min(latencies)
    assert len(set(latencies)) > MAPPINGS // 2

    document = mapping_document(program, device, mappings[1], recipe={})
    again = read_mapping(document, program)
    assert all((getattr(again, name) == getattr(mappings[1], name)).all() for name in [*COLUMNS, "access_offset"])


def distinct_mappings(program, device):
    """Return a thousand legal mappings that differ: parts of ten random ones, as a part of a legal one is legal."""
    rng = np.random.default_rng(0)
    found = {}
    for seed in range(10):
        full = random_mapping(program, device, seed, tries=400, longest=100)
        columns = {name: getattr(full, name) for name in COLUMNS}
        while len(found) < MAPPINGS * (seed + 1) // 10:
            kept = rng.random(full.residencies) < rng.uniform(0.4, 1)
            part = {name: column[kept] for name, column in columns.items()}
            mapping = Mapping.from_residencies(program, **part)
            found[b"".join(column.tobytes() for column in part.values())] = mapping
    return list(found.values())
