"""Text → tokens → batches. The only package that may import TensorFlow, and only lazily."""
