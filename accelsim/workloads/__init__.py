"""JAX models that example and benchmark HLO is made from. The only part of accelsim that imports jax."""
