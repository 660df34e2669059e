"""A linear probe in closed form: quick enough to run during training, without random numbers."""

import numpy as np

_PENALTY = 1.0  # on the squared weights, for standardized features


def accuracy(
    features_ND: np.ndarray, labels_N: np.ndarray, is_test_N: np.ndarray, num_classes: int
) -> float:
    """The accuracy of ridge regression onto the classes: Hastie et al. 2009, section 4.2.

    Args:
        features_ND: float, of the words of the training and the test part.
        labels_N: int, their classes in [0, C).
        is_test_N: bool, whether a word is in the test part.
        num_classes: C.
    """
    train_ND = features_ND[~is_test_N].astype(np.float64)
    mean_D, deviation_D = train_ND.mean(0), train_ND.std(0)
    scale_D = np.where(deviation_D > 1e-5 * np.abs(train_ND).max(initial=0), deviation_D, np.inf)
    x_ND = (train_ND - mean_D) / scale_D
    targets_NC = np.eye(num_classes)[labels_N[~is_test_N]]
    bias_C = targets_NC.mean(0)
    products_DD = x_ND.T @ x_ND + _PENALTY * np.eye(x_ND.shape[1])
    weights_DC = np.linalg.solve(products_DD, x_ND.T @ (targets_NC - bias_C))
    scores_NC = (features_ND[is_test_N] - mean_D) / scale_D @ weights_DC + bias_C
    return float(np.mean(scores_NC.argmax(1) == labels_N[is_test_N]))
