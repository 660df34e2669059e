"""Using a model: texts in, vectors and guesses out."""
