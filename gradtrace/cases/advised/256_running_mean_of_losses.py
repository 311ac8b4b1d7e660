# obeys: ema = ema.detach()
import torch, torch.nn as nn
torch.manual_seed(0)
net=nn.Linear(4,1); opt=torch.optim.SGD(net.parameters(),0.1); ema=0.; hist=[]
for i in range(4):
    loss=net(torch.randn(8,4)).pow(2).mean()
    ema=0.9*ema+0.1*loss
    hist.append(loss)
    opt.zero_grad(); (loss+0.01*ema).backward(); opt.step(); ema = ema.detach()
