"""Transfer learning: which parameters are trained, from which step, at which learning rate.

All three depend on the distance of a parameter from the heads. Heads (everything outside the
encoder, and its pooler) have distance 0, the last of L layers 1, the first layer L, and the
embeddings L + 1. Layers that share their parameters count as one layer. In an encoder–decoder the
decoder is next to the heads, and the encoder follows: its last layer comes after the decoder's
first.
"""

import dataclasses
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.training.optimizers import STACK
from bert_jax.training.schedules import duration
from bert_jax.types import Config, Tree

# Parts of a stack other than its layers: distance from the heads, given the number of layers.
_DISTANCES: dict[str, Callable[[int], int]] = {
    'pooler': lambda num_layers: 0,
    'final_norm': lambda num_layers: 1,
    'convolution': lambda num_layers: num_layers,  # after the first layer
    'relative_positions': lambda num_layers: num_layers + 1,  # used by all layers
    'embeddings': lambda num_layers: num_layers + 1,
    'query_start': lambda num_layers: num_layers + 1,  # of XLNet: beside the embeddings
}
_PARTS = ('encoder', 'decoder')


@dataclasses.dataclass(frozen=True)
class Transfer:
    """Which parameters are trained, from which step, and at which learning rate.

    Attributes:
        trainable: 'all', 'heads', or 'last:K' for the heads and the last K layers. Other parameters
            are never trained: they have no gradients, no moments and no weight decay.
        layer_decay: factor of the learning rate per unit of distance: heads 1, last layer
            layer_decay, embeddings layer_decay^(L + 1). The discriminative learning rates of ULMFiT
            (Howard & Ruder 2018, arXiv 1801.06146, section 3.2) are 1 / 2.6, the layer-wise decay
            of ELECTRA 0.8 or 0.9.
        faithful_layer_decay: applies the factor twice between heads and last layer, as ELECTRA's
            original code does (google-research/electra, model/optimization.py).
        frozen: names of parameters that parameter-efficient tuning never trains; checkpoints leave
            them out. If there are any, `trainable` is 'all' and means all other parameters.
        unfreeze_every_steps: gradual unfreezing (ULMFiT, section 3.3): parameters at distance n are
            frozen until step n · unfreeze_every_steps; 0 freezes none. Their gradients and moments
            are computed from the start, so that nothing is recompiled and the first update has the
            usual size.
    """

    trainable: str = 'all'
    layer_decay: float = 1.0
    faithful_layer_decay: bool = False
    unfreeze_every_steps: int = 0
    frozen: frozenset[str] = frozenset()

    def select(self, params: Tree, tree: Tree | None = None) -> Tree:
        """Replace the leaves of parameters that are never trained by None.

        Args:
            params: all parameters.
            tree: a tree with the structure of `params`, to select from; by default `params`.

        Raises:
            UserError: `trainable` asks for more layers than there are.
        """
        return jax.tree.map(
            lambda is_trained, leaf: leaf if np.any(is_trained) else None,
            self._is_trained(params),
            params if tree is None else tree,
        )

    def merge(self, trained: Tree, params: Tree) -> Tree:
        """Return `params` with the trained parameters replaced by `trained`, a tree of `select`.

        In stacked layers the layers that are not trained keep their values and get no gradients.
        """

        def choose(is_trained: np.ndarray, param: Tree, new: Tree) -> Tree:
            if new is None:
                return param
            return new if np.all(is_trained) else jnp.where(is_trained, new, param)

        return jax.tree.map(choose, self._is_trained(params), params, trained)

    def unfrozen(self, trained: Tree, step: jax.typing.ArrayLike) -> Tree:
        """Return whether each trained parameter is updated at `step`, as bools that broadcast."""
        if not self.unfreeze_every_steps:
            return jax.tree.map(lambda _: True, trained)
        return jax.tree.map(
            lambda distance: distance * self.unfreeze_every_steps <= step, _distances(trained)
        )

    def scale_updates(
        self, optimizer: optax.GradientTransformation
    ) -> optax.GradientTransformation:
        """Multiply the updates of an optimizer by the layer-wise decay of each parameter."""
        if self.layer_decay == 1:
            return optimizer

        def scale(update: Tree, distance: np.ndarray) -> Tree:
            return update * jnp.asarray(self._rate_factor(distance), update.dtype)

        return optax.chain(
            optimizer,
            optax.stateless(lambda updates, _: jax.tree.map(scale, updates, _distances(updates))),
        )

    def num_trained(self, params: Tree) -> int:
        """Number of parameters that are trained, sooner or later."""
        counts = jax.tree.map(
            lambda is_trained, leaf: round(leaf.size * np.mean(is_trained)),
            self._is_trained(params),
            params,
        )
        return sum(jax.tree.leaves(counts))

    def describe(self, params: Tree) -> list[str]:
        """Lines for the log; none if all parameters are trained at the same learning rate."""
        lines, trained, total = [], self.num_trained(params), num_parameters(params)
        share = f'{trained:,} of {total:,} parameters are trained'
        if self.frozen:
            lines.append(f'{share} ({trained / total:.2%}); checkpoints hold only these')
        if self.trainable != 'all':
            lines.append(f'{share} ({self.trainable})')
        if self.layer_decay != 1:
            first = f'{self._rate_factor(np.array(_num_layers(params))):.3g}'
            lines.append(
                f'learning rate × {self.layer_decay:.4g} from layer to layer, × {first} in layer 0'
            )
        if self.unfreeze_every_steps:
            last = self._last_distance(params) * self.unfreeze_every_steps
            lines.append(
                f'gradual unfreezing: heads first, then a layer every {self.unfreeze_every_steps:,}'
                f' steps, the last one at step {last:,}'
            )
        return lines

    def stored(self, state: Tree) -> Tree:
        """The part of a TrainState that checkpoints hold.

        With parameter-efficient tuning, checkpoints leave out the frozen parameters; a resumed run
        reads them from `init_from`.
        """
        return state._replace(params=self.select(state.params)) if self.frozen else state

    def _is_trained(self, params: Tree) -> Tree:
        """Whether each parameter is trained, bool arrays that broadcast with it."""
        if self.trainable == 'all':
            return jax.tree_util.tree_map_with_path(
                lambda path, _: np.array(tree_paths.path_name(path) not in self.frozen), params
            )
        last = self._last_distance(params)
        return jax.tree.map(lambda distance: distance <= last, _distances(params))

    def _last_distance(self, params: Tree) -> int:
        """The largest distance at which parameters are trained."""
        num_layers = _num_layers(params)
        if self.trainable == 'all':
            return num_layers + 1
        last = 0 if self.trainable == 'heads' else int(self.trainable.removeprefix('last:'))
        if last > num_layers:
            raise UserError(
                f'transfer.trainable is {self.trainable!r}, but there are {num_layers} layers '
                "(shared layers count once); choose fewer, or 'all'"
            )
        return last

    def _rate_factor(self, distance: np.ndarray) -> np.ndarray:
        """The factor of the learning rate at a distance, float32."""
        is_applied_twice = (distance > 0) & self.faithful_layer_decay
        return self.layer_decay ** (distance + is_applied_twice).astype(np.float32)


TRAIN_ALL = Transfer()


def build(config: Config, total_steps: int, frozen: frozenset[str] = frozenset()) -> Transfer:
    """Build the Transfer of a run with `total_steps` steps from its `config.transfer`.

    Raises:
        UserError: a value is not valid.
    """
    if not re.fullmatch('all|heads|last:[1-9][0-9]*', config.trainable):
        raise UserError(
            f"transfer.trainable is {config.trainable!r}; use 'all', 'heads', or 'last:2' for the "
            'heads and the last 2 layers'
        )
    if frozen and config.trainable != 'all':
        raise UserError(
            f'transfer.trainable is {config.trainable!r}, but transfer.method={config.method} '
            "determines what is trained; set transfer.trainable to 'all'"
        )
    if config.trainable == 'heads' and config.layer_decay != 1:
        raise UserError(
            f"transfer.layer_decay is {config.layer_decay}, but transfer.trainable='heads' trains "
            'no layers; set it to 1'
        )
    if config.faithful_layer_decay and config.layer_decay == 1:
        raise UserError(
            'transfer.faithful_layer_decay is True, but transfer.layer_decay is 1; set one of them'
        )
    every = duration(config, 'transfer.unfreeze_every', total_steps)
    if every and config.trainable == 'heads':
        raise UserError(
            f"transfer.unfreeze_every_steps is {every}, but transfer.trainable='heads' leaves "
            'nothing to unfreeze; set it to 0'
        )
    return Transfer(
        config.trainable, config.layer_decay, config.faithful_layer_decay, every, frozen
    )


def num_parameters(params: Tree) -> int:
    """Return the number of parameters in a tree of arrays."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _distances(tree: Tree) -> Tree:
    """The distance of every parameter from the heads, int64 arrays that broadcast with it."""
    counts = {part: _num_layers_of(tree.get(part, {})) for part in _PARTS}

    def distance(path: tuple[object, ...], leaf: Tree) -> np.ndarray:
        parts = tree_paths.path_name(path).split('/')
        if parts[0] not in _PARTS:
            return np.array(0)
        num_layers = counts[parts[0]]
        nearer = counts['decoder'] if parts[0] == 'encoder' else 0
        if parts[1] == STACK:
            return nearer + np.arange(num_layers, 0, -1).reshape(-1, *(1,) * (leaf.ndim - 1))
        number = _layer_number(parts[1])
        if number is not None:
            return np.array(nearer + num_layers - number)
        if parts[1] not in _DISTANCES:
            raise ValueError(f'_DISTANCES has no distance from the heads for {"/".join(parts[:2])}')
        return np.array(nearer + _DISTANCES[parts[1]](num_layers))

    return jax.tree_util.tree_map_with_path(distance, tree)


def _num_layers(tree: Tree) -> int:
    """Number of layers, even if the tree holds only the last layers."""
    return sum(_num_layers_of(tree.get(part, {})) for part in _PARTS)


def _num_layers_of(stack: Tree) -> int:
    """Number of layers of an encoder or decoder."""
    stacked = jax.tree.leaves(stack.get(STACK))
    if stacked:
        return len(stacked[0])
    numbers = [_layer_number(part) for part, leaves in stack.items() if jax.tree.leaves(leaves)]
    return 1 + max((number for number in numbers if number is not None), default=-1)


def _layer_number(part: str) -> int | None:
    match = re.fullmatch(rf'{STACK}_(\d+)', part)
    return int(match[1]) if match else None
