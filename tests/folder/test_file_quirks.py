"""Weights files as they are found in practice: tied in any way, sharded, pickled,
damaged, hostile.
"""

import io
import json
import os
import pickle
import random
import re
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.config import AlbertConfig
from litebert.errors import DamagedError, LitebertError
from litebert.folder import ModelFolder, read_folder, write_folder
from litebert.folder.weights import stamp_weights, write_weights
from litebert.inference.model import Model
from litebert.nn import AlbertForPretraining
from tests.memory import memory_below, run_in_child
from tests.networks import SHAPE, drawn, random_model
from tests.waiting import ends_quickly

CONFIG = AlbertConfig(**SHAPE, vocab_size=90)
WORDS = "albert.embeddings.word_embeddings.weight"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Write a small model into a folder of its own and return its weights file."""
    write_folder(ModelFolder(drawn(AlbertForPretraining(CONFIG))), tmp_path)
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("has_decoder", [False, True])
@pytest.mark.parametrize(
    "kept", [("bias",), ("decoder.bias",), ("bias", "decoder.bias")]
)
def test_tied_tensors_may_be_stored_in_any_combination(
    weights: Path, kept: tuple[str, ...], has_decoder: bool
) -> None:
    tensors = load_file(weights)
    expected = {
        name: tensor.clone()
        for name, tensor in read_folder(weights.parent).network.state_dict().items()
    }
    bias = tensors.pop("predictions.bias")
    tensors |= {f"predictions.{name}": bias.clone() for name in kept}
    if has_decoder:
        tensors["predictions.decoder.weight"] = tensors[WORDS].clone()
    # buffers of older versions of transformers
    positions = torch.arange(64)[None]
    buffers = {
        "albert.embeddings.position_ids": positions,
        "albert.embeddings.token_type_ids": torch.zeros_like(positions),
    }
    save_file(tensors | buffers, weights)
    again = read_folder(weights.parent)
    state = again.network.state_dict()
    assert not again.missing and all(
        torch.equal(tensor, state[name]) for name, tensor in expected.items()
    )


def test_a_tensor_may_be_stored_twice_if_both_are_equal(weights: Path) -> None:
    tensors = load_file(weights)
    expected = read_folder(weights.parent).network.state_dict()
    bare = WORDS.removeprefix("albert.")
    save_file(tensors | {bare: tensors[WORDS].clone()}, weights)
    state = read_folder(weights.parent).network.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in expected.items())
    save_file(tensors | {bare: tensors[WORDS] + 1}, weights)
    with pytest.raises(DamagedError, match=r"LB-609[\s\S]*word_embeddings"):
        read_folder(weights.parent)


def test_a_link_to_nothing_is_no_file_of_weights(weights: Path) -> None:
    folder = weights.parent
    (folder / "other.safetensors").symlink_to("nowhere")
    assert set(stamp_weights(folder)) == {"model.safetensors"}
    weights.unlink()
    weights.symlink_to("nowhere")
    with pytest.raises(LitebertError, match="LB-602"):
        Model.load(folder)


def test_the_tensors_of_a_file_begin_at_multiples_of_eight_bytes(
    tmp_path: Path,
) -> None:
    """Elsewhere, readers that map a file would have to copy them."""
    for num_letters in range(1, 9):
        path = tmp_path / f"{num_letters}.safetensors"
        write_weights(path, {"w" * num_letters: torch.ones(2)})
        size = int.from_bytes(path.read_bytes()[:8], "little")
        assert size % 8 == 0


def test_of_float_and_eight_bit_weights_the_float_ones_are_read(weights: Path) -> None:
    expected = read_folder(weights.parent).network.state_dict()
    weights.with_name("model-int8.safetensors").write_bytes(b"the rounded ones")
    state = read_folder(weights.parent).network.state_dict()
    for name, tensor in expected.items():
        assert torch.equal(tensor, state[name]), name


def test_an_untied_masked_lm_head_is_left_out_and_the_encoder_is_used(
    weights: Path,
) -> None:
    tensors = load_file(weights)
    untied = {"predictions.decoder.weight": tensors[WORDS] + 1}
    save_file(tensors | untied, weights)
    model = read_folder(weights.parent)
    assert any("not tied" in note for note in model.notes)
    assert {name.split(".")[0] for name in model.missing} == {"masked_lm"}


def test_non_finite_numbers_and_files_elsewhere_are_refused(weights: Path) -> None:
    tensors = load_file(weights)
    for value in (torch.nan, torch.inf):
        save_file(tensors | {WORDS: tensors[WORDS] + value}, weights)
        with pytest.raises(DamagedError, match=rf"LB-607[\s\S]*{WORDS}"):
            read_folder(weights.parent)
    weights.unlink()
    places = ("../model.safetensors", "/etc/passwd", "x\0.safetensors", "..")
    for weight_map in ({}, [], *({"a": place} for place in places)):
        weights.with_name("model.safetensors.index.json").write_text(
            json.dumps({"weight_map": weight_map})
        )
        with pytest.raises(LitebertError, match=r"LB-60[28]"):
            read_folder(weights.parent)


class _Payload:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("executed"),)


def test_a_pickle_named_safetensors_is_recognised_and_not_opened(
    weights: Path, monkeypatch
) -> None:
    monkeypatch.chdir(weights.parent)
    archive = io.BytesIO()
    torch.save({"a": torch.ones(2)}, archive)
    for data in (
        archive.getvalue(),
        *(pickle.dumps(_Payload(), protocol=protocol) for protocol in (2, 3, 4, 5)),
    ):
        weights.write_bytes(data)
        with pytest.raises(
            DamagedError, match=r"LB-603[\s\S]*a pickle, as torch\.save"
        ):
            read_folder(weights.parent)
    assert not Path("executed").exists()


def _headed(
    header: bytes | dict[str, tuple[list[int], tuple[int, int]]],
    claimed: int = 0,
    body: int = 0,
) -> bytes:
    """Build a file from a header (bytes, or shapes and extents by name), its claimed
    size, and the size of its data.
    """
    if isinstance(header, dict):
        listed = {
            n: {"dtype": "F32", "shape": shape, "data_offsets": extent}
            for n, (shape, extent) in header.items()
        }
        header = json.dumps(listed).encode()
    return struct.pack("<Q", claimed or len(header)) + header + b"0" * body


ENTRY = b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
HOSTILE = {
    "2^63": _headed(b"{}", 2**63),
    "2^64": _headed(b"{}", 2**64 - 1),
    "100 MB": _headed(b"{}", 100 << 20),
    "nesting": _headed(b"[" * 100_000),
    "objects": _headed(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "cut": _headed(b"{%s,{%s," % (ENTRY, ENTRY), body=4),
    "shape": _headed({"a": ([2**40, 2**40], (0, 4))}, body=4),
    "offset": _headed({"a": ([1], (0, 2**63))}, body=4),
    "overlap": _headed({"a": ([1], (0, 4)), "b": ([1], (2, 6))}, body=6),
    "hole": _headed({"a": ([1], (0, 4)), "b": ([1], (8, 12))}, body=12),
    "negative": _headed({"a": ([-1], (0, 4))}, body=4),
    "twice": _headed(b"{%s,%s}" % (ENTRY, ENTRY), body=4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_safetensors_are_refused_before_anything_is_allocated(
    weights: Path, name: str
) -> None:
    weights.write_bytes(HOSTILE[name])
    with memory_below(32 << 20), pytest.raises(DamagedError, match="LB-603"):
        read_folder(weights.parent)


def test_changed_weights_are_noticed_and_a_file_without_a_hash_has_a_note(
    weights: Path,
) -> None:
    folder = weights.parent
    data = weights.read_bytes()
    assert not read_folder(folder).notes
    size = 8 + int.from_bytes(data[:8], "little")
    draws = random.Random(5)
    for number in range(150):  # bits of the header, then of the numbers
        changed = bytearray(data)
        place = draws.randrange(size if number < 100 else len(data))
        changed[place] ^= 1 << draws.randrange(8)
        weights.write_bytes(changed)
        if b'"sha256"' in changed:
            with pytest.raises(DamagedError, match=r"LB-60[37]|LB-676"):
                read_folder(folder, for_inference=bool(number % 2))
    weights.write_bytes(data)
    save_file(load_file(weights), weights)
    (note,) = read_folder(folder).notes
    assert "model.safetensors has no hash" in note
    write_folder(ModelFolder(read_folder(folder).network), folder)
    assert weights.read_bytes() == data


def test_of_shards_without_hashes_the_note_names_one_that_is_there(
    tmp_path: Path,
) -> None:
    random_model("AlbertModel").save_pretrained(tmp_path, max_shard_size="10KB")
    assert not (tmp_path / "model.safetensors").exists()
    (note,) = read_folder(tmp_path).notes
    assert re.match(r"model-00001-of-\d{5}\.safetensors and \d+ more has no hash", note)


def test_doubts_about_published_models_are_not_those_of_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (CONFIG.hidden_size, CONFIG.num_hidden_layers)
    monkeypatch.setattr("litebert.folder.doubts.PUBLISHED_SHAPES", {shape})
    own = CONFIG.model_copy(update={"hidden_act": "gelu"})
    write_folder(ModelFolder(drawn(AlbertForPretraining(own))), tmp_path)
    assert not read_folder(tmp_path).notes
    path = tmp_path / "model.safetensors"
    save_file(load_file(path), path)  # as others do
    assert any("tanh form" in note for note in read_folder(tmp_path).notes)


IMPORT = """
from litebert.interop.huggingface import import_model
folder = Path(sys.argv[1])
before = peak_memory()
unused = import_model(folder, folder / "out").unused
print(*unused, peak_memory() - before)
"""


def test_a_large_tensor_that_no_network_uses_is_not_read(weights: Path) -> None:
    data = weights.read_bytes()
    stop = 8 + int.from_bytes(data[:8], "little")
    table = json.loads(data[8:stop])
    size = len(data) - stop
    del table["__metadata__"]["sha256"]
    table["unused"] = {
        "dtype": "F16",
        "shape": [1 << 15, 1 << 15],
        "data_offsets": [size, size + (2 << 30)],
    }
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    weights.write_bytes(struct.pack("<Q", len(header)) + header + data[stop:])
    # a sparse file: it takes no disk space
    os.truncate(weights, weights.stat().st_size + (2 << 30))
    name, size = run_in_child(IMPORT, weights.parent)
    assert name == "unused"
    assert int(size) < 64 << 20


ABSURD = {
    "hidden_size": 10**12,
    # the largest allowed, and equal: nothing is projected
    "embedding_size and hidden_size": 65_536,
    "num_hidden_layers": 10**9,
    "vocab_size": 2**63,
    "intermediate_size": -3,
    "layer_norm_eps": 1e400,
    "num_attention_heads": "9" * 10_000_000,
    "hidden_act": json.loads("[" * 900 + "]" * 900),
}


@pytest.mark.parametrize("name", [*ABSURD, "a million keys"])
def test_absurd_numbers_in_a_configuration_are_refused_quickly(
    weights: Path, name: str
) -> None:
    path = weights.with_name("config.json")
    config = json.loads(path.read_text())
    config |= (
        dict.fromkeys(name.split(" and "), ABSURD[name])
        if name in ABSURD
        else {f"key_{number}": 0 for number in range(1_000_000)}
    )
    path.write_text(json.dumps(config))
    with ends_quickly(), pytest.raises(LitebertError) as caught:
        read_folder(weights.parent)
    assert len(str(caught.value)) < 2_000
