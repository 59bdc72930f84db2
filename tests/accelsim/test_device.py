import tomllib

import pytest

from accelsim.device import FOLDER, LIMITS, device_names, load_device, parse_device
from accelsim.errors import InputError

FIGURES = {
    "flops_per_second": 10**12,
    "slow_bytes_per_second": 10**11,
    "fast_read_bytes_per_second": 10**12,
    "fast_write_bytes_per_second": 10**12,
    "dma_bytes_per_second": 10**11,
    "dma_latency_ps": 0,
    "capacity_bytes": 4096,
    "alignment_bytes": 8,
    "memory_space": 1,
}


def toml(**changes: object) -> str:
    table = {"name": '"mine"', "title": '"My chip"', **FIGURES, **changes}
    return "\n".join(f"{key} = {value}" for key, value in table.items() if value is not None)


def refusal(text: str, **options: int) -> InputError:
    with pytest.raises(InputError) as caught:
        parse_device(text, **options)
    return caught.value


def test_the_three_chips_are_there():
    assert device_names() == ("tpu-v4", "tpu-v5e", "tpu-v6e")


@pytest.mark.parametrize("name", device_names())
def test_each_figure_of_each_chip_has_its_source(name):
    device = load_device(name)
    assert device.name == name
    assert set(device.sources) == set(LIMITS)
    assert all(len(text) > 20 for text in device.sources.values())


@pytest.mark.parametrize(
    ("name", "flops", "slow", "capacity", "space"),
    [
        ("tpu-v4", 275 * 10**12, 1200 * 10**9, 64 * 2**20, 3),
        ("tpu-v5e", 197 * 10**12, 819 * 10**9, 128 * 2**20, 1),
        ("tpu-v6e", 918 * 10**12, 1640 * 10**9, 128 * 2**20, 1),
    ],
)
def test_published_figures_are_as_published(name, flops, slow, capacity, space):
    device = load_device(name)
    assert (device.flops_per_second, device.slow_bytes_per_second) == (flops, slow)
    assert (device.capacity_bytes, device.memory_space) == (capacity, space)


def test_it_reads_a_device_of_the_user(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(toml(flops_per_second="2.5e12"))
    device = load_device(path)
    assert device.name == "mine"
    assert device.flops_per_second == 2_500_000_000_000
    assert isinstance(device.flops_per_second, int)
    assert device.sources == {}


def test_the_capacity_can_be_overridden():
    assert load_device("tpu-v4", capacity_bytes=2**20).capacity_bytes == 2**20
    assert load_device("tpu-v4").with_capacity(2**21).capacity_bytes == 2**21
    assert parse_device(toml(), capacity_bytes=64).capacity_bytes == 64


@pytest.mark.parametrize("capacity", [0, -1, 2**60, 7])
def test_it_refuses_a_capacity_that_makes_no_sense(capacity):
    assert "capacity" in refusal(toml(), capacity_bytes=capacity).message


@pytest.mark.parametrize("key", sorted(FIGURES))
@pytest.mark.parametrize(
    "value", ["-1", "nan", "inf", "-inf", "true", '"fast"', "[1]", "1.5", "1" + "0" * 40, "1" + "0" * 300, "1e300"]
)
def test_it_names_the_key_of_a_wrong_figure(key, value):
    error = refusal(toml(**{key: value}))
    assert key in error.message
    assert error.code in ("device-type", "device-range")
    assert len(error.message) < 200


@pytest.mark.parametrize("key", sorted(set(FIGURES) - {"dma_latency_ps"}))
def test_only_the_dma_latency_may_be_zero(key):
    assert key in refusal(toml(**{key: 0})).message


@pytest.mark.parametrize("key", ["name", "title", *FIGURES])
def test_it_names_a_missing_key(key):
    error = refusal(toml(**{key: None}))
    assert error.code == "device-key"
    assert repr(key) in error.message


@pytest.mark.parametrize(
    ("addition", "named"),
    [
        ("colour = 1", "colour"),
        ("[sources]\ncolour = 'x'", "sources.colour"),
        ("[sources]\ncapacity_bytes = 1", "sources.capacity_bytes"),
    ],
)
def test_it_names_an_unknown_key(addition, named):
    assert named in refusal(toml() + "\n" + addition).message


@pytest.mark.parametrize("key", ["name", "title"])
@pytest.mark.parametrize("value", ["1", '""', "'" + "x" * 201 + "'"])
def test_it_refuses_a_name_that_is_no_name(key, value):
    assert key in refusal(toml(**{key: value})).message


@pytest.mark.parametrize("key", ["fast_read_bytes_per_second", "fast_write_bytes_per_second"])
def test_fast_memory_is_not_slower_than_slow_memory(key):
    assert key in refusal(toml(**{key: 10**11 - 1})).message


@pytest.mark.parametrize("text", ["= 1", "name = ", "a = 1\na = 2", "x = " + "[" * 5000, "x = " + "9" * 10_000])
def test_it_refuses_what_is_not_toml(text):
    assert refusal(text).code == "device-toml"


@pytest.mark.parametrize("name", ["tpu-v99", "", "../devices/tpu-v4", str(FOLDER / "tpu-v4.toml"), "x" * 10_000])
def test_it_lists_the_devices_when_the_name_is_unknown(name):
    with pytest.raises(InputError, match="tpu-v5e") as caught:
        load_device(name)
    assert caught.value.code == "device-name"
    assert len(caught.value.message) < 200


def test_it_says_when_the_file_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"missing\.toml"):
        load_device(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        load_device(tmp_path / "binary.toml")


def test_the_files_hold_nothing_but_the_keys():
    for name in device_names():
        table = tomllib.loads((FOLDER / f"{name}.toml").read_text())
        assert set(table) == {"name", "title", "sources", *LIMITS}
