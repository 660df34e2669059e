"""Decoders, which write a text while they attend to the states of an encoder."""
