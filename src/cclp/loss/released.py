"""What the authors' TensorFlow code of 2019 computes, for comparison with it.

Its constants make it differ from the paper and break it where embeddings grow: the smoothing
outweighs the way out of a tight group, and labels turn uniform without a word.
"""

import torch
from torch import Tensor

from cclp.loss.inputs import Batch

SMOOTHING = 1e-5
_LOG_FLOOR = 1e-6
_MASS_FLOOR = 1e-5


def released_loss(batch: Batch, logits: Tensor, chain_steps: int) -> Tensor:
    """Eq. 2-9 with the released constants, scaled by 1/N, in the dtype of the batch.

    Args:
        batch: embeddings and labels.
        logits: similarities, (N, N).
        chain_steps: S.
    """
    n_l = batch.y.shape[0]
    if logits.shape[0] == n_l + 1:  # a single unlabeled sample is dropped
        logits = logits[:n_l, :n_l]
    n = logits.shape[0]
    H = SMOOTHING / n + (1 - SMOOTHING) * logits.softmax(1)
    eye = torch.eye(n - n_l, dtype=H.dtype, device=H.device)
    # Eq. 5, self-loops and smoothing included.
    phi, _ = torch.linalg.solve_ex(eye - H[n_l:, n_l:], H[n_l:, :n_l] @ batch.y)
    Phi = torch.cat([batch.y, phi])
    T = Phi @ (Phi / (Phi.sum(0) + _MASS_FLOOR)).T
    G = H * (Phi @ Phi.T)
    chain = H
    loss = -(T * (chain + _LOG_FLOOR).log()).sum()
    for _ in range(chain_steps - 1):
        chain = G @ chain
        loss = loss - (T * (chain + _LOG_FLOOR).log()).sum()
    return loss / (chain_steps * n)
