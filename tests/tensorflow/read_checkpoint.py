"""Read a checkpoint with real TensorFlow, in both ways it has, into one .npz.

python tests/tensorflow/read_checkpoint.py PREFIX OUTPUT.npz
"""

import sys
from pathlib import Path

import numpy as np


def main(prefix, output):
    """Read all variables, then restore them into a TF1 graph and compare."""
    import tensorflow as tf

    v1 = tf.compat.v1
    reader = tf.train.load_checkpoint(prefix)
    read = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    with tf.Graph().as_default():
        variables = {
            name: v1.get_variable(name, values.shape, values.dtype, use_resource=False) for name, values in read.items()
        }
        with v1.Session() as session:
            v1.train.Saver(variables).restore(session, prefix)
            restored = session.run(variables)
    for name, values in read.items():
        assert restored[name].tobytes() == values.tobytes(), name
    assert tf.train.latest_checkpoint(str(Path(prefix).parent)) == prefix
    kinds = {f"{name}:dtype": np.array(str(values.dtype)) for name, values in read.items()}
    wide = {
        name: values.astype("float32") if values.dtype.name == "bfloat16" else values for name, values in read.items()
    }
    np.savez(output, **wide, **kinds)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
