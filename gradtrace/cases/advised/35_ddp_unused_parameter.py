# obeys: pass find_unused_parameters=True
import torch, torch.nn as nn, torch.distributed as dist

dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(2, 2); self.b = nn.Linear(2, 2)
    def forward(self, x): return self.a(x)           # self.b unused
ddp = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
try:
    for step in range(2):
        ddp(torch.ones(1, 2)).sum().backward()
finally: dist.destroy_process_group()
