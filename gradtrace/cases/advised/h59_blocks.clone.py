from torch import nn


class Conv2dBlock(nn.Module):
    def __init__(self, i, o, ks, pad, activation_first=True):
        super().__init__()
        self.activation = nn.LeakyReLU(0.2, inplace=True)
        self.pad = nn.ReflectionPad2d(pad)
        self.conv = nn.Conv2d(i, o, ks)
        self.activation_first = activation_first

    def forward(self, x):
        if self.activation_first:
            x = self.activation(x.clone())
        x = self.conv(self.pad(x))
        return x if self.activation_first else self.activation(x)


class ActFirstResBlock(nn.Module):
    def __init__(self, fin, fout):
        super().__init__()
        self.conv_s = nn.Conv2d(fin, fout, 1, bias=False)
        self.conv_0 = Conv2dBlock(fin, fin, 3, 1)
        self.conv_1 = Conv2dBlock(fin, fout, 3, 1)

    def forward(self, x):
        x_s = self.conv_s(x)
        dx = self.conv_1(self.conv_0(x))
        return x_s + dx
