"""A span classifier on a transformers encoder, like bert_jax/models/heads/spans.py."""

import torch
from torch import nn
from transformers import AutoModel
from transformers.modeling_outputs import TokenClassifierOutput


class SpanModel(nn.Module):
    """Classifies [FFN(first subword); FFN(last subword); mean of the subwords] of each span."""

    def __init__(self, weights, num_labels: int, width: int):
        super().__init__()
        self.encoder = AutoModel.from_pretrained(weights, add_pooling_layer=False)
        size = self.encoder.config.hidden_size
        self.dropout = nn.Dropout(self.encoder.config.hidden_dropout_prob)
        self.start = nn.Sequential(nn.Linear(size, width), nn.GELU())
        self.end = nn.Sequential(nn.Linear(size, width), nn.GELU())
        self.hidden = nn.Sequential(nn.Linear(2 * width + size, width), nn.GELU())
        self.classifier = nn.Linear(width, num_labels)
        # Initialized like bert_jax. The default of nn.Linear is smaller by √3 per layer; with it
        # the model learns little more than the class frequencies in 300 steps.
        for layer in (self.start[0], self.end[0], self.classifier):
            _initialize(layer, [layer.in_features])
        _initialize(self.hidden[0], [width, width, size])

    def forward(self, first, last, labels, **inputs):
        """Return loss and logits of spans; first, last, labels (−100: padding) are int64 [B, S]."""
        states = self.dropout(self.encoder(**inputs).last_hidden_state)
        sums = nn.functional.pad(states.cumsum(1), (0, 0, 1, 0))
        size = (last - first + 1).unsqueeze(-1)
        mean = (_at(sums, last + 1) - _at(sums, first)) / size
        parts = [_at(self.start(states), first), _at(self.end(states), last), mean]
        logits = self.classifier(self.dropout(self.hidden(torch.cat(parts, dim=-1))))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return TokenClassifierOutput(loss=loss, logits=logits)


def _initialize(layer: nn.Linear, parts: list[int]):
    """Draw the weights of each part of the input with deviation 1/√width; zero the bias."""
    for weight in layer.weight.data.split(parts, dim=1):
        nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    nn.init.zeros_(layer.bias)


def _at(values, positions):
    """values[b, positions[b, s]], [B, S, …]."""
    return values.gather(1, positions.unsqueeze(-1).expand(-1, -1, values.shape[-1]))
