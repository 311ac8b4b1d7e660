# obeys: under torch.no_grad()
import numpy as np
import torch
from torch import nn


class SinusoidalPositionalEmbedding(nn.Embedding):
    def __init__(self, num_positions, embedding_dim):
        super().__init__(num_positions, embedding_dim)
        self.weight = self._init_weight(self.weight)

    @staticmethod
    def _init_weight(out):
        n_pos, dim = out.shape
        position_enc = np.array(
            [[pos / np.power(10000, 2 * (j // 2) / dim) for j in range(dim)] for pos in range(n_pos)]
        )
        with torch.no_grad():
            out[:, 0 : dim // 2] = torch.FloatTensor(np.sin(position_enc[:, 0::2]))
            out[:, dim // 2 :] = torch.FloatTensor(np.cos(position_enc[:, 1::2]))
        out.detach_()
        out.requires_grad = False
        return out

    def forward(self, input_ids):
        return super().forward(torch.arange(input_ids.shape[1]))


torch.manual_seed(0)
emb = SinusoidalPositionalEmbedding(10, 8)
proj = nn.Linear(8, 2)
proj(emb(torch.zeros(1, 5, dtype=torch.long))).sum().backward()
