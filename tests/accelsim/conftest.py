from hypothesis import HealthCheck, settings

# The first call of a compiled kernel takes seconds, machines are shared, and a test that fails must fail again.
settings.register_profile("accelsim", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("accelsim")
