"""Several runs of several variants in one picture."""

import pathlib


def plot(path: pathlib.Path, found: dict[str, dict[str, dict]], columns: dict[str, str]):
    """One panel a measure: a dot for every run, a bar at the mean.

    found: variant → measure → 'mean' and 'values'; columns: measure → its title.
    """
    import matplotlib

    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    names = list(found)
    height = 1.2 + 0.32 * len(names)
    size = (3.6 * len(columns), height)
    figure, axes = plt.subplots(1, len(columns), figsize=size, sharey=True, squeeze=False)
    for axis, (column, title) in zip(axes[0], columns.items(), strict=True):
        for row, name in enumerate(names):
            if column in found[name]:
                own = found[name][column]
                axis.plot(own['values'], [row] * len(own['values']), 'o', color='C0', alpha=0.6)
                axis.plot(own['mean'], row, '|', color='black', markersize=16)
        axis.set_xlabel(title)
        axis.grid(alpha=0.3)
        axis.set_yticks(range(len(names)), names)
        axis.set_ylim(len(names) - 0.5, -0.5)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)
