"""Write tiny checkpoints with real TensorFlow, each with its contents as .npz.

python tests/tensorflow/checkpoints.py tests/interop/google/fixtures

The names are those that google-research/albert gives its variables (issues 29 and 243
list them). Numbers are multiples of 1/64 that bfloat16 holds exactly.
"""

import json
import sys
from pathlib import Path

import numpy as np

VOCAB = 40
EMBED = 8
HIDDEN = 16
INTERMEDIATE = 24
POSITIONS = 12
LABELS = 3
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "down_scale_factor": 1,
    "embedding_size": EMBED,
    "gap_size": 0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "inner_group_num": 1,
    "intermediate_size": INTERMEDIATE,
    "layers_to_keep": [],
    "max_position_embeddings": POSITIONS,
    "net_structure_type": 0,
    "num_attention_heads": 4,
    "num_hidden_groups": 1,
    "num_hidden_layers": 4,
    "num_memory_blocks": 0,
    "type_vocab_size": 2,
    "vocab_size": VOCAB,
}


def dense(name, rows, columns, bias=True):
    return {f"{name}/kernel": (rows, columns)} | (
        {f"{name}/bias": (columns,)} if bias else {}
    )


def norm(name, size):
    return {f"{name}/beta": (size,), f"{name}/gamma": (size,)}


def block(name):
    shapes = {}
    for part in ("self/query", "self/key", "self/value", "output/dense"):
        shapes |= dense(f"{name}/attention_1/{part}", HIDDEN, HIDDEN)
    shapes |= norm(f"{name}/LayerNorm", HIDDEN)
    shapes |= dense(f"{name}/ffn_1/intermediate/dense", HIDDEN, INTERMEDIATE)
    shapes |= dense(f"{name}/ffn_1/intermediate/output/dense", INTERMEDIATE, HIDDEN)
    return shapes | norm(f"{name}/LayerNorm_1", HIDDEN)


def encoder(groups=1, inner=1, size=EMBED):
    rows = {"word": VOCAB, "token_type": 2, "position": POSITIONS}
    shapes = {
        f"bert/embeddings/{kind}_embeddings": (count, size)
        for kind, count in rows.items()
    }
    shapes |= norm("bert/embeddings/LayerNorm", size)
    if size != HIDDEN:
        shapes |= dense("bert/encoder/embedding_hidden_mapping_in", size, HIDDEN)
    for group in range(groups):
        for layer in range(inner):
            shapes |= block(
                f"bert/encoder/transformer/group_{group}/inner_group_{layer}"
            )
    return shapes | dense("bert/pooler/dense", HIDDEN, HIDDEN)


def output(scope, rows):
    return {f"{scope}output_weights": (rows, HIDDEN), f"{scope}output_bias": (rows,)}


def pretraining_heads(size=EMBED):
    transform = "cls/predictions/transform"
    shapes = dense(f"{transform}/dense", HIDDEN, size) | norm(
        f"{transform}/LayerNorm", size
    )
    return (
        shapes
        | {"cls/predictions/output_bias": (VOCAB,)}
        | output("cls/seq_relationship/", 2)
    )


def conditional_spans():
    shapes = dense("start_logits/dense", HIDDEN, 1) | dense(
        "end_logits/dense_0", 2 * HIDDEN, HIDDEN
    )
    shapes |= norm("end_logits/LayerNorm", HIDDEN) | dense(
        "end_logits/dense_1", HIDDEN, 1
    )
    shapes |= dense("answer_class/dense_0", 2 * HIDDEN, HIDDEN)
    return shapes | dense("answer_class/dense_1", HIDDEN, 1, bias=False)


def drawn(shapes, seed, dtype="float32"):
    """Draw the numbers of every variable, and add its type."""
    generator = np.random.default_rng(seed)
    return {
        name: ((generator.integers(-127, 128, shape) / 64).astype(np.float32), dtype)
        for name, shape in shapes.items()
    }


def write(
    folder, variables, *, name="model.ckpt-best", devices=1, step=None, config=CONFIG
):
    """Save variables from a TF1 graph on a number of devices, and so in as many data
    files.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    variables = dict(variables)
    if step is not None:
        variables["global_step"] = (np.int64(step), "int64")
    folder.mkdir(parents=True)
    with tf.Graph().as_default():
        for number, (key, (values, dtype)) in enumerate(sorted(variables.items())):
            with tf.device(f"/cpu:{(number + number // 3) % devices}"):
                start = tf.cast(values, dtype)
                v1.get_variable(key, initializer=start, use_resource=False)
        saver = v1.train.Saver(sharded=devices > 1, save_relative_paths=True)
        settings = v1.ConfigProto(device_count={"CPU": devices})
        with v1.Session(config=settings) as session:
            session.run(v1.global_variables_initializer())
            saver.save(session, str(folder / name), write_meta_graph=False)
    np.savez_compressed(
        folder / "expected.npz",
        **{key: values for key, (values, _) in variables.items()},
    )
    if config is not None:
        text = json.dumps(config, indent=2, sort_keys=True) + "\n"
        (folder / "albert_config.json").write_text(text)


def write_special(folder):
    """Save what must be refused: a sliced variable, the first format, objects of
    TF2.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    for name in ("sliced", "first_format", "objects"):
        (folder / name).mkdir(parents=True)
    with tf.Graph().as_default():
        slices = v1.fixed_size_partitioner(2)
        initial = v1.zeros_initializer()
        words = "bert/embeddings/word_embeddings"
        v1.get_variable(
            words, [4, 3], initializer=initial, partitioner=slices, use_resource=False
        )
        v1.get_variable("whole", [2], initializer=initial, use_resource=False)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            path = folder / "sliced" / "model.ckpt"
            v1.train.Saver().save(session, str(path), write_meta_graph=False)
            path = folder / "first_format" / "model.ckpt"
            v1.train.Saver(write_version=1).save(
                session, str(path), write_meta_graph=False
            )
    tf.train.Checkpoint(weight=tf.Variable([1.0])).write(
        str(folder / "objects" / "model.ckpt")
    )
    for state in folder.rglob("checkpoint"):
        state.unlink()


def write_all(target):
    """Write every fixture into a new folder."""
    shapes = encoder() | pretraining_heads()
    slots = {
        f"{name}/{slot}": shape
        for name, shape in shapes.items()
        for slot in ("adam_m", "adam_v")
    }
    write(target / "pretraining", drawn(shapes | slots, 1), devices=3, step=7)
    groups = CONFIG | {"num_hidden_groups": 2, "inner_group_num": 2}
    four_blocks = drawn(encoder(2, 2) | pretraining_heads(), 2, "bfloat16")
    write(target / "groups_bfloat16", four_blocks, devices=2, step=0, config=groups)
    equal = CONFIG | {"embedding_size": HIDDEN, "hidden_act": "relu"}
    shapes = encoder(size=HIDDEN) | pretraining_heads(HIDDEN)
    write(target / "equal_sizes", drawn(shapes, 3), step=0, config=equal)
    write(target / "labels", drawn(encoder() | output("", LABELS), 4), step=100)
    write(target / "one_output", drawn(encoder() | output("", 1), 5), step=100)
    write(target / "spans", drawn(encoder() | output("cls/squad/", 2), 6), step=100)
    write(
        target / "conditional_spans",
        drawn(encoder() | conditional_spans(), 7),
        step=100,
    )
    # the modules on TF-Hub have no such head
    hub = target / "hub"
    order = "cls/seq_relationship/"
    shapes = {
        f"module/{n}": shape
        for n, shape in (encoder() | pretraining_heads()).items()
        if not n.startswith(order)
    }
    write(hub / "variables", drawn(shapes, 9), name="variables")
    (hub / "assets").mkdir()
    (hub / "variables" / "albert_config.json").rename(
        hub / "assets" / "albert_config.json"
    )
    (hub / "variables" / "expected.npz").rename(hub / "expected.npz")
    kinds = ("float16", "float32", "float64", "bfloat16", "int32", "int64")
    numbers = {
        kind: (np.arange(-3, 3, dtype=np.float32).reshape(2, 3), kind) for kind in kinds
    }
    write(target / "kinds", numbers, config=None)
    write_special(target)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
