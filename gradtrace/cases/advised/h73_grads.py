import torch


class TrapGrad:
    def __init__(self, amplitude, rise_time=0.1, flat_time=0.5):
        self.amplitude, self.rise_time, self.flat_time = amplitude, rise_time, flat_time

    def waveform(self):
        t = torch.tensor([0.0, self.rise_time, self.rise_time + self.flat_time, 2 * self.rise_time + self.flat_time])
        amp = torch.stack([torch.zeros(()), self.amplitude, self.amplitude, torch.zeros(())])
        return t, amp

    def area(self):
        t, amp = self.waveform()
        return torch.trapezoid(amp, t)
