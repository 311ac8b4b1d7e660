# "Count after one step and after the second."  A window of two losses is still filling up then.
def what_grows(trainer):
    def tensors(value):
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, dict):
            yield from tensors(list(value.values()))
        elif isinstance(value, list | tuple):
            for item in value:
                yield from tensors(item)

    def count(value):
        found, stack = set(), [t.grad_fn for t in tensors(value) if t.grad_fn]
        while stack:
            node = stack.pop()
            if node is not None and node not in found:
                found.add(node)
                stack.extend(node for node, _ in node.next_functions)
        return len(found)

    trainer.step()
    before = {name: count(value) for name, value in vars(trainer).items()}
    trainer.step()
    return [name for name, value in vars(trainer).items() if count(value) > before[name]]
