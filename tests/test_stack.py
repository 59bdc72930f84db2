"""The pinned set holds together where packages are known to disagree."""

import subprocess
import sys

import pytest

DGL_AND_TORCH = """
import dgl, torch
graph = dgl.graph((torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])))
layer = dgl.nn.GraphConv(4, 2)
out = layer(graph, torch.ones(3, 4))
out.sum().backward()
assert out.shape == (3, 2) and layer.weight.grad is not None
"""


@pytest.mark.slow
def test_the_pinned_dgl_trains_on_the_pinned_torch():
    done = subprocess.run([sys.executable, "-c", DGL_AND_TORCH], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
