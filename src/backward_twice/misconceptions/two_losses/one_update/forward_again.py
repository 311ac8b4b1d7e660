# "Compute the second loss anew."  It runs, but at weights that have already moved.
def one_update(trunk, head_a, head_b, optimizer, x, target_a, target_b):
    for head, target in ((head_a, target_a), (head_b, target_b)):
        optimizer.zero_grad()
        (head(trunk(x)) - target).square().mean().backward()
        optimizer.step()
