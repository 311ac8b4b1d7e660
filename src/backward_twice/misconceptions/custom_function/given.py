# The exercise's own cell.
@torch.no_grad()
def solve(x, a):
    """The y with y + a * y**3 = x, for each value of x and a; no value of a is negative."""
    low, high = -x.abs(), x.abs()
    for _ in range(60):
        middle = (low + high) / 2
        below = middle + a * middle**3 < x
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2
