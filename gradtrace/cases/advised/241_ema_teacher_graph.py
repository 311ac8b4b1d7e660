# obeys: detach each tensor that carries over
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset


class EMATeacher:
    def __init__(self, student, decay):
        self.student, self.decay = student, decay
        self.shadow = {k: v.detach().clone() for k, v in student.named_parameters()}

    def update(self):
        for name, param in self.student.named_parameters():
            self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * param.detach()

    def __call__(self, x):
        with torch.no_grad():
            return functional_call(self.student, self.shadow, (x,))


class Net(nn.Module):
    def __init__(self, inp=10, classes=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inp, 20), nn.ReLU(), nn.Linear(20, classes))

    def forward(self, x):
        return self.body(x)


class MeanTeacher:
    def __init__(self, cfg):
        self.cfg = cfg
        self.student = Net()
        self.teacher = EMATeacher(self.student, cfg["decay"])
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=cfg["lr"])

    def augment(self, x):
        return x + self.cfg["noise"] * torch.randn_like(x)

    def step(self, labeled, y, unlabeled):
        sup = F.cross_entropy(self.student(self.augment(labeled)), y)
        target = self.teacher(self.augment(unlabeled)).softmax(-1)
        cons = F.mse_loss(self.student(self.augment(unlabeled)).softmax(-1), target)
        loss = sup + self.cfg["w"] * cons
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.teacher.update()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    algo = MeanTeacher({"decay": 0.99, "lr": 0.1, "noise": 0.1, "w": 2.0})
    data = TensorDataset(torch.randn(80, 10), torch.randint(0, 4, (80,)), torch.randn(80, 10))
    for i, batch in enumerate(DataLoader(data, batch_size=8)):
        print(i, algo.step(*batch))
