# obeys: compute the loss from the value before that operation
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Config:
    coor_bin = 16
    size = 6
    lr = 1e-3


class ObjectCrops(Dataset):
    def __init__(self, n, cfg):
        g = torch.Generator().manual_seed(3)
        self.img = torch.randn(n, 3, cfg.size, cfg.size, generator=g)
        self.coor = torch.rand(n, 3, cfg.size, cfg.size, generator=g) * 2 - 1

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        return self.img[i], self.coor[i]


class CDPN(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.rot_head = nn.Conv2d(16, 3 * (cfg.coor_bin + 1), 1)
        self.cfg = cfg

    def forward(self, x):
        out = self.rot_head(self.backbone(x))
        return out.chunk(3, dim=1)


def decode_coordinates(outputs, cfg):
    output_coor_x_, output_coor_y_, output_coor_z_ = outputs
    output_coor_ = torch.stack([torch.argmax(output_coor_x_, axis=1),
                                torch.argmax(output_coor_y_, axis=1),
                                torch.argmax(output_coor_z_, axis=1)], axis=1)
    output_coor_[output_coor_ == cfg.coor_bin] = 0
    return 2.0 * output_coor_.float() / (cfg.coor_bin - 1.0) - 1.0


def train(cfg):
    torch.manual_seed(0)
    model = CDPN(cfg)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=cfg.lr)
    loader = DataLoader(ObjectCrops(16, cfg), batch_size=4)
    for i, (img, coor) in enumerate(loader):
        bins = ((coor + 1) / 2 * (cfg.coor_bin - 1)).round().long()
        loss = sum(F.cross_entropy(o, bins[:, k]) for k, o in enumerate(model(img)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(i, loss.item())


if __name__ == "__main__":
    train(Config())
