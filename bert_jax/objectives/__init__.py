"""What an encoder is pretrained on: one file an objective."""
