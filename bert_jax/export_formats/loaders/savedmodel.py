"""Runs the SavedModel in the folder `model` with TensorFlow."""

import tensorflow


def load(folder, signature):
    """Return a function from inputs to outputs, by name; compiled once for each shape."""
    model = tensorflow.saved_model.load(str(folder / 'model'))
    function = model.signatures['serving_default']

    def compute(inputs):
        outputs = function(**{name: tensorflow.constant(array) for name, array in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    compute.model = model  # keeps the variables alive
    return compute
