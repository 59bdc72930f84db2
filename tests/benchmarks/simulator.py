"""How many mappings the simulator scores a second, beside its plain reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from accelsim import reference
from accelsim.mapping import COLUMNS, Mapping, validate
from accelsim.program import Program
from accelsim.simulator import MappingBatch, Simulator
from tests.accelsim.programs import SMALL, random_mapping, random_program

TITLE = "Simulator: mappings scored a second, one thread"
LONG = False

STEPS, BUFFERS, BATCH = 1000, 600, 1024
CHECKED = 64  # mappings of the batch whose latency the reference computes as well
SECONDS = 3.0


def rows(done: list[dict]) -> Iterator[dict]:
    device = SMALL.with_capacity(2**16)
    program = random_program(7, steps=STEPS, buffers=BUFFERS)
    mappings = distinct_mappings(program, random_mapping(program, device, 7, tries=4000, longest=60))
    assert all(validate(program, device, mapping) == [] for mapping in mappings[:CHECKED])
    simulator = Simulator(program, device)
    batch = MappingBatch.of(program, mappings)
    latencies = simulator.latencies(batch)
    costs = simulator.costs
    expected = [reference.latency(program, costs, mapping) for mapping in mappings[:CHECKED]]
    assert latencies[:CHECKED].tolist() == expected

    shape = {
        "steps": program.steps,
        "accesses": program.accesses,
        "residencies a mapping": round(np.mean([mapping.residencies for mapping in mappings])),
        "copies a mapping": round(len(batch.copy_issue) / BATCH),
        "distinct mappings": BATCH,
        "distinct latencies": len(set(latencies.tolist())),
    }
    yield {"what": "batch", **shape, "mappings a second": BATCH * rate(lambda: simulator.latencies(batch))}
    built = rate(lambda: simulator.latencies(MappingBatch.of(program, mappings)))
    yield {"what": "batch, built from objects each time", **shape, "mappings a second": BATCH * built}
    plain = rate(lambda: [reference.latency(program, costs, mapping) for mapping in mappings[:CHECKED]])
    yield {"what": "reference", **shape, "mappings a second": CHECKED * plain}
    checks = rate(lambda: [validate(program, device, mapping) for mapping in mappings[:CHECKED]])
    yield {"what": "validate", **shape, "mappings a second": CHECKED * checks}


def distinct_mappings(program: Program, full: Mapping) -> list[Mapping]:
    """Return a batch of mappings that differ: a legal mapping stays legal when residencies are left out."""
    rng = np.random.default_rng(0)
    chosen = rng.random((BATCH, full.residencies)) < rng.uniform(0.5, 0.98, (BATCH, 1))
    assert len(np.unique(chosen, axis=0)) == BATCH
    columns = {name: getattr(full, name) for name in COLUMNS}
    return [
        Mapping.from_residencies(program, **{name: column[kept] for name, column in columns.items()}) for kept in chosen
    ]


def rate(work: Callable[[], object]) -> float:
    """Return how often a second the work is done, after one call that does not count."""
    work()
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < SECONDS:
        work()
        count += 1
    return count / (time.perf_counter() - begun)
