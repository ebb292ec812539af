"""Files as they lie on disks: sharded, half precision, tied in any way, old, damaged, hostile."""

import io
import json
import pickle
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.config import AlbertConfig
from litebert.errors import DamagedError, LitebertError
from litebert.folder import load_model, save_model
from litebert.nn import AlbertForPretraining
from tests.memory import memory_below

SHAPE = AlbertConfig(
    vocab_size=90, embedding_size=16, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48
)
WORDS = "albert.embeddings.word_embeddings.weight"


@pytest.fixture
def network(tmp_path: Path) -> AlbertForPretraining:
    network = AlbertForPretraining(SHAPE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        network.masked_lm.bias.normal_()
    save_model(network, tmp_path)
    return network


def _rewrite(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / "model.safetensors")


@pytest.mark.parametrize("has_decoder", [False, True])
@pytest.mark.parametrize("kept", [("bias",), ("decoder.bias",), ("bias", "decoder.bias")])
def test_tied_tensors_may_be_written_in_any_combination(
    tmp_path: Path, network: AlbertForPretraining, kept: tuple[str, ...], has_decoder: bool
) -> None:
    tensors = load_file(tmp_path / "model.safetensors")
    bias = tensors.pop("predictions.bias")
    tensors |= {f"predictions.{name}": bias.clone() for name in kept}
    if has_decoder:
        tensors["predictions.decoder.weight"] = tensors[WORDS].clone()
    _rewrite(tmp_path, tensors | {"albert.embeddings.position_ids": torch.arange(512)[None]})
    again = load_model(tmp_path)
    state = again.network.state_dict()
    assert not again.missing and all(torch.equal(each, state[name]) for name, each in network.state_dict().items())


def test_an_untied_decoder_numbers_that_are_none_and_files_elsewhere_are_refused(
    tmp_path: Path, network: AlbertForPretraining
) -> None:
    tensors = load_file(tmp_path / "model.safetensors")
    for value, said in ((1.0, "LB-609"), (torch.nan, rf"LB-607[\s\S]*{WORDS}"), (torch.inf, rf"LB-607[\s\S]*{WORDS}")):
        other = tensors[WORDS] + value
        _rewrite(tmp_path, tensors | {"predictions.decoder.weight" if value == 1 else WORDS: other})
        with pytest.raises(DamagedError, match=said):
            load_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    places = ("../model.safetensors", "/etc/passwd", "x\0.safetensors", "..")
    for weight_map in ({}, [], *({"a": place} for place in places)):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(LitebertError, match=r"LB-60[28]"):
            load_model(tmp_path)


class _Payload:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("executed"),))


def test_a_pickle_named_safetensors_is_recognised_and_not_opened(
    tmp_path: Path, network: AlbertForPretraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    archive = io.BytesIO()
    torch.save({"a": torch.ones(2)}, archive)
    for data in (archive.getvalue(), *(pickle.dumps(_Payload(), protocol=protocol) for protocol in (2, 3, 4, 5))):
        (tmp_path / "model.safetensors").write_bytes(data)
        with pytest.raises(DamagedError, match=r"LB-603[\s\S]*a pickle, as torch\.save"):
            load_model(tmp_path)
    assert not (tmp_path / "executed").exists()


def _with_header(
    header: bytes | dict[str, tuple[list[int], tuple[int, int]]], claimed: int = 0, body: int = 0
) -> bytes:
    """Lay a file out: its header as bytes or, by name, shapes and extents; the size that it claims; its data."""
    if isinstance(header, dict):
        listed = {n: {"dtype": "F32", "shape": shape, "data_offsets": extent} for n, (shape, extent) in header.items()}
        header = json.dumps(listed).encode()
    return struct.pack("<Q", claimed or len(header)) + header + b"0" * body


ENTRY = b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
HOSTILE = {
    "2^63": _with_header(b"{}", 2**63),
    "2^64": _with_header(b"{}", 2**64 - 1),
    "100 MB": _with_header(b"{}", 100 << 20),
    "nesting": _with_header(b"[" * 100_000),
    "objects": _with_header(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "cut": _with_header(b"{%s,{%s," % (ENTRY, ENTRY), body=4),
    "shape": _with_header({"a": ([2**40, 2**40], (0, 4))}, body=4),
    "offset": _with_header({"a": ([1], (0, 2**63))}, body=4),
    "overlap": _with_header({"a": ([1], (0, 4)), "b": ([1], (2, 6))}, body=6),
    "hole": _with_header({"a": ([1], (0, 4)), "b": ([1], (8, 12))}, body=12),
    "negative": _with_header({"a": ([-1], (0, 4))}, body=4),
    "twice": _with_header(b"{%s,%s}" % (ENTRY, ENTRY), body=4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_safetensors_are_refused_before_anything_is_allocated(
    tmp_path: Path, network: AlbertForPretraining, name: str
) -> None:
    (tmp_path / "model.safetensors").write_bytes(HOSTILE[name])
    with memory_below(32 << 20), pytest.raises(DamagedError, match="LB-603"):
        load_model(tmp_path)


def test_changed_weights_are_noticed_and_a_file_without_a_hash_says_so(
    tmp_path: Path, network: AlbertForPretraining
) -> None:
    path = tmp_path / "model.safetensors"
    data = path.read_bytes()
    assert not load_model(tmp_path).notes
    changed = bytearray(data)
    for place in range(-4_000, 0, 10):
        changed[place] ^= 1  # finite numbers, each almost the same
    path.write_bytes(bytes(changed))
    for for_inference in (False, True):
        with pytest.raises(DamagedError, match=r"LB-676[\s\S]*those that were saved"):
            load_model(tmp_path, for_inference=for_inference)
    path.write_bytes(data)
    _rewrite(tmp_path, load_file(path))
    notes = load_model(tmp_path).notes
    assert len(notes) == 1 and "model.safetensors has no hash" in notes[0]
    save_model(load_model(tmp_path).network, tmp_path)
    assert path.read_bytes() == data


def test_every_flipped_bit_of_a_header_is_noticed_or_changes_nothing(
    tmp_path: Path, network: AlbertForPretraining
) -> None:
    path = tmp_path / "model.safetensors"
    data = path.read_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    generator = torch.Generator().manual_seed(5)
    for bit in torch.randint(0, size * 8, (150,), generator=generator).tolist():
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(bytes(changed))
        try:
            loaded = load_model(tmp_path)
        except LitebertError:
            continue
        state = loaded.network.state_dict()
        renamed = loaded.missing or loaded.unused
        assert renamed or all(tensor.shape == network.state_dict()[name].shape for name, tensor in state.items())


def test_a_large_tensor_that_no_network_uses_is_not_read(tmp_path: Path, network: AlbertForPretraining) -> None:
    path = tmp_path / "model.safetensors"
    data = path.read_bytes()
    stop = 8 + int.from_bytes(data[:8], "little")
    table, body = json.loads(data[8:stop]), data[stop:]
    del table["__metadata__"]["sha256"]
    extent = [len(body), len(body) + (2 << 30)]
    table["unused"] = {"dtype": "F16", "shape": [1 << 15, 1 << 15], "data_offsets": extent}
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + body)
        file.truncate(8 + len(header) + extent[1])  # a hole: no disk is used
    code = (
        "import resource\nfrom pathlib import Path\nfrom litebert.interop.huggingface import import_model\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"folder = Path({str(tmp_path)!r}); before = used()\n"
        "print(*import_model(folder, folder / 'out').unused, (used() - before) >> 10)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name, mebibytes = done.stdout.split()
    assert name == "unused"
    assert int(mebibytes) < 64


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 10**12},
        {"num_hidden_layers": 10**9},
        {"vocab_size": 2**63},
        {"intermediate_size": -3},
        {"layer_norm_eps": 1e400},
        {"num_attention_heads": "9" * 10_000_000},
        {"hidden_act": json.loads("[" * 900 + "]" * 900)},
        {f"key_{number}": 0 for number in range(1_000_000)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_absurd_numbers_in_a_configuration_are_refused_soon(
    tmp_path: Path, network: AlbertForPretraining, change: dict[str, object]
) -> None:
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    begun = time.process_time()
    with pytest.raises(LitebertError) as caught:
        load_model(tmp_path)
    assert time.process_time() - begun < 1
    assert len(str(caught.value)) < 2_000


def test_control_a_network_of_absurd_size_would_be_allocated() -> None:
    with pytest.raises(RuntimeError, match=r"allocate|overflow"):
        AlbertForPretraining(AlbertConfig.model_construct(**{**dict(SHAPE), "vocab_size": 2**50}))
