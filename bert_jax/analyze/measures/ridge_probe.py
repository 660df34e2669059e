"""A linear probe in closed form: fast enough to run during training, and deterministic."""

import numpy as np

_PENALTY = 1.0  # L2 penalty, for standardized features


def accuracy(
    features_ND: np.ndarray, labels_N: np.ndarray, is_test_N: np.ndarray, num_classes: int
) -> float:
    """Train a ridge regression onto one-hot classes; return its accuracy on the test words.

    Source: Hastie et al. 2009, section 4.2.

    Args:
        features_ND: float, features of the training and test words.
        labels_N: int, classes in [0, C).
        is_test_N: bool, whether a word is a test word.
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
